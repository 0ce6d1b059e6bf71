// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bytes that an ONNX model moves: counted from its graph, not measured.
#pragma once

#include <cohort/runtime/tensor.hpp>

#include <models/traffic.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <formats/onnx_graph.hpp>

namespace cohort::commands {

/// A model's nodes with the bytes that they read and write: constants, and a row of data that
/// depends on the request.
class onnx_traffic {
 public:
  /// @param tensors Tensors of a row, by name: others, such as those computed from shapes, count as
  /// nothing.  @param size Of the rows.
  onnx_traffic(const formats::onnx_model& m,
               const std::map<std::string, runtime::tensor_info>& tensors, std::uint32_t size) {
    const std::map<std::string_view, double> constants = bytes_of_constants(m);
    for (const formats::onnx_node& n : m.nodes) {
      if (only_names(n.op)) continue;
      node& counted = nodes_.emplace_back();
      for (const auto* names : {&n.inputs, &n.outputs}) {
        for (const std::string& name : *names) {
          if (const auto at = constants.find(name); at != constants.end()) {
            counted.constant += at->second;
          } else if (const auto found = tensors.find(name); found != tensors.end()) {
            counted.row += static_cast<double>(found->second.bytes(size));
          }
        }
      }
    }
  }

  /// Traffic of one batch, as in `models::count_traffic`, but without operations. Each node counts
  /// its reads and writes once, by the graph: a runtime that fuses nodes moves less. O(nodes).
  [[nodiscard]] models::traffic of_batch(std::uint32_t batch, std::size_t cache_bytes) const {
    models::traffic t;
    for (const node& n : nodes_) {
      const double bytes = n.constant + n.row * batch;
      t.bytes += bytes;
      if (bytes > static_cast<double>(cache_bytes)) t.large_bytes += bytes;
    }
    return t;
  }
  /// Adds the nodes of another model, such as the next stage.
  void add(const onnx_traffic& more) {
    nodes_.insert(nodes_.end(), more.nodes_.begin(), more.nodes_.end());
  }

 private:
  struct node {
    double constant = 0;
    double row = 0;
  };

  /// Nodes that only rename or reshape data, and move none.
  static bool only_names(std::string_view op) {
    constexpr std::array<std::string_view, 7> all{"Constant", "Flatten", "Identity", "Reshape",
                                                  "Shape",    "Squeeze", "Unsqueeze"};
    return std::ranges::find(all, op) != all.end();
  }
  static std::map<std::string_view, double> bytes_of_constants(const formats::onnx_model& m) {
    std::map<std::string_view, double> all;
    for (const formats::onnx_tensor& t : m.constants) {
      const auto type = formats::plain_element(t.element);
      double bytes = type ? static_cast<double>(runtime::bytes_of(*type)) : 0;
      for (const std::int64_t d : t.dims) bytes *= static_cast<double>(d);
      all[t.name] = bytes;
    }
    return all;
  }

  std::vector<node> nodes_;
};

/// Counts a file, or all stages of a folder. ONNX Runtime is found by the environment or the
/// system, and provides the shapes between nodes.
/// @param max_length Of a dynamic length: rows are counted at that length.
/// @throws config_error If a file cannot be read or run.  @throws input_error If it is no model.
[[nodiscard]] onnx_traffic count_onnx_traffic(const std::string& file, std::uint32_t max_length);

}  // namespace cohort::commands
