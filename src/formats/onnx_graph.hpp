// SPDX-License-Identifier: Apache-2.0
/// @file
/// ONNX models as values: graphs of named tensors, read with limits and written.
#pragma once

#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::formats {

/// The rest of a message without the fields below, in ONNX's own form: restored on writing, so that
/// nothing is lost.
using onnx_rest = std::string;

/// ONNX's number of an element type, and the reverse; nothing for types that are not plain numbers.
[[nodiscard]] std::int32_t onnx_element(runtime::data_type type) noexcept;
[[nodiscard]] std::optional<runtime::data_type> plain_element(std::int32_t element) noexcept;

/// A constant.
struct onnx_tensor {
  std::string name;
  std::int32_t element = 1;
  std::vector<std::int64_t> dims{};
  std::string data{};  ///< Elements in order, little-endian; empty if they are in `rest`.
  onnx_rest rest{};
};

struct onnx_dimension {
  std::int64_t value = -1;  ///< −1: unknown.
  std::string name{};       ///< Of an unknown one; may be empty.
};

/// A tensor's declaration. For other kinds `element` is 0, and the rest is in `rest`.
struct onnx_value {
  std::string name;
  std::int32_t element = 0;
  std::optional<std::vector<onnx_dimension>> shape{};  ///< None: not declared.
  onnx_rest rest{};
};

struct onnx_attribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>>
      value;
};

/// One operation.
struct onnx_node {
  std::string op;
  std::vector<std::string> inputs;   ///< Empty: omitted.
  std::vector<std::string> outputs;  ///< Empty: unused.
  std::vector<onnx_attribute> attributes{};
  std::string name{};
  std::string domain{};
  std::vector<std::string>
      captured{};  ///< Names of the outer graph that graphs within this node read.
  onnx_rest rest{};
};

struct onnx_opset {
  std::string domain;
  std::int64_t version = 0;
};

struct onnx_model {
  std::string name{};              ///< Of the graph.
  std::vector<onnx_node> nodes{};  ///< Each behind those whose outputs it reads.
  std::vector<onnx_tensor> constants{};
  std::vector<onnx_value> inputs{};
  std::vector<onnx_value> outputs{};
  std::vector<onnx_value> values{};  ///< Declarations of intermediate tensors.
  std::vector<onnx_opset> opsets{};
  std::int64_t ir_version = 8;
  onnx_rest rest{};        ///< Of the model.
  onnx_rest graph_rest{};  ///< Rest of its graph.
};

/// Limits of a model.
struct onnx_limits {
  std::size_t bytes = (std::size_t{1} << 31U) - 1;
  std::size_t nodes = 200'000;  ///< Including those of graphs within nodes.
  std::size_t name_bytes = 1024;
};

/// Parses a model and checks it: each name is defined once, is printable, and is produced before it
/// is read in some order of the nodes, in which they are returned; sizes of constants fit their
/// shapes. O(bytes), and a sort of nodes that are out of order.
/// @param file Name for errors.
/// @throws input_error If it is not such a model or exceeds the limits: names the error and its
/// place.
[[nodiscard]] onnx_model parse_onnx(const std::string& file, std::string_view bytes,
                                    const onnx_limits& limits = {});

/// Writes the model in ONNX's form; equal models give equal bytes.
[[nodiscard]] std::string to_bytes(const onnx_model& model);

}  // namespace cohort::formats
