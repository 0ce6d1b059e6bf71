// SPDX-License-Identifier: Apache-2.0
/// @file
/// Derives a model's interface from its declared shapes: which dimension is the batch, and which
/// the size.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/tensor.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cohort::runtime::onnx::detail {

struct dimension {
  std::int64_t value = -1;  ///< −1: dynamic.
  std::string name{};       ///< Name of a dynamic one; may be empty.
};

/// A tensor as declared by the model. A rank of 0 may mean unknown.
struct declared_tensor {
  std::string name;
  data_type type = data_type::f32;
  std::vector<dimension> shape{};
};

/// Runs the model on zeros. @returns The shapes of all its outputs.
using probe_run = std::function<std::vector<std::vector<std::int64_t>>(
    std::span<const tensor_info> inputs, bool has_batch, std::uint32_t rows, std::uint32_t size)>;

struct described_model {
  model_interface interface;
  bool has_batch = false;
  bool pads = false;
  std::string why_open{};  ///< Why it has no rows; empty if it has.
};

/// A model's tensors cannot be rows of requests.
class no_rows_error : public config_error {
 public:
  using config_error::config_error;
};

/// Shapes of all inputs for a run on zeros: the number of rows (a first dimension, and those with
/// its name) is 1, and other open dimensions have this length.
[[nodiscard]] std::vector<std::vector<std::int64_t>> sample_shapes(
    const std::vector<declared_tensor>& inputs, std::int64_t length);

/// Derives the interface by the rules of `session`. Runs probes only if outputs' shapes are
/// unclear.
/// @throws config_error If a shape is out of range or not understood: names tensor and dimension.
[[nodiscard]] described_model describe(const std::vector<declared_tensor>& inputs,
                                       const std::vector<declared_tensor>& outputs,
                                       const session_options& options, const probe_run& probe);

}  // namespace cohort::runtime::onnx::detail
