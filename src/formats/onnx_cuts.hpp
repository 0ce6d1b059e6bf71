// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds places to cut an ONNX graph into stages, and makes their models.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "onnx_graph.hpp"

namespace cohort::formats {

/// A place between two nodes of a graph. Constants and values computed only from them do not cross
/// it: each stage has its own copy of those that it uses.
struct onnx_cut {
  std::size_t node = 0;  ///< The first node after it, in the model's order.
  /// Crossing tensors: produced before and read after it, or outputs of the model produced before
  /// it; in order of production. At least one.
  std::vector<std::string> tensors{};
  /// Runtimes fuse the node after it with the one before, such as an addition after a product: a
  /// cut here changes rounding.
  bool splits_fusion = false;

  friend bool operator==(const onnx_cut&, const onnx_cut&) = default;
};

/// All places crossed by at most `most_tensors` tensors, in order; O((nodes + edges) log nodes).
/// @param m As read: nodes in an order in which names are produced before they are read.
/// @param most_tensors At least 1.
[[nodiscard]] std::vector<onnx_cut> find_cuts(const onnx_model& m, std::size_t most_tensors = 3);

/// The models of the stages between some places: stage k takes the tensors that cross place k − 1,
/// the first the model's inputs, and produces those that cross place k, the last the model's
/// outputs. Tensors only passed on are both inputs and outputs of a stage. Run in sequence they
/// compute the same as the model. O(nodes + edges + bytes of constants) for each stage.
/// @param at From `find_cuts` of this model, in order, each once. Crossing tensors are declared as
/// among the model's values, or else among its inputs or outputs.
/// @throws input_error If type or shape of a crossing tensor are not declared: names it.
[[nodiscard]] std::vector<onnx_model> cut(const onnx_model& m, std::span<const onnx_cut> at);

}  // namespace cohort::formats
