// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a graph of ONNX can be cut into stages, and the models that it is cut into.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "onnx_graph.hpp"

namespace cohort::formats {

/// A place between two nodes of a graph. Constants, and what depends on nothing else, do not cross
/// it: each stage has its own copy of those that it uses.
struct onnx_cut {
  std::size_t node = 0;  ///< The first behind it, in the model's order.
  /// That cross: given before and read behind it, or outputs of the model given before it; in the
  /// order in which they are given. At least one.
  std::vector<std::string> tensors{};
  /// The node behind it is one that runtimes join to what comes before, such as an addition behind
  /// a product: cut here they round otherwise.
  bool splits_fusion = false;

  friend bool operator==(const onnx_cut&, const onnx_cut&) = default;
};

/// All places that at most so many tensors cross, in order; O((nodes + edges) log nodes).
/// @param m As read: nodes in an order in which names are given before they are read.
/// @param most_tensors At least 1.
[[nodiscard]] std::vector<onnx_cut> find_cuts(const onnx_model& m, std::size_t most_tensors = 3);

/// The models of the stages between some places: stage k takes what crosses place k − 1, the first
/// the model's inputs, and gives what crosses place k, the last the model's outputs. What a stage
/// only passes on is both an input and an output of it. Run one after the other they do what the
/// model does. O(nodes + edges + bytes of constants) for each stage.
/// @param at Of `find_cuts` of this model, in order, each once.
/// What crosses is declared as among the model's values; if not there, as among its inputs or
/// outputs.
/// @throws input_error If type or shape of a tensor that crosses are not declared: names it.
[[nodiscard]] std::vector<onnx_model> cut(const onnx_model& m, std::span<const onnx_cut> at);

}  // namespace cohort::formats
