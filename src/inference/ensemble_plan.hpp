// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models one behind the other as one: `ensemble_plan`, `ensemble_run`.
#pragma once

#include <cohort/core/version.hpp>
#include <cohort/runtime/shaped_tensor.hpp>
#include <cohort/runtime/tensor.hpp>

#include <formats/model_config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::inference {

/// The steps of an ensemble, and which of its tensors each of them takes and makes. Tensors are
/// numbered: first the inputs of requests, in the order of the configuration.
class ensemble_plan {
 public:
  /// A model's input or output, and the tensor of the ensemble that it is.
  struct port {
    std::string name;
    std::uint32_t tensor;
  };
  struct step {
    std::string model;
    std::string version;  ///< Empty: the latest.
    std::vector<port> inputs;
    std::vector<port> outputs;
  };

  /// @param c With steps. @param file Named in errors. O(ports log tensors + steps²).
  /// @throws formats::input_error If an input or output has no type or shape, a step has no inputs
  /// or outputs, a tensor is made twice or by nobody, or steps wait for each other.
  ensemble_plan(const formats::model_config& c, const std::string& file);

  [[nodiscard]] const std::vector<step>& steps() const noexcept { return steps_; }
  [[nodiscard]] std::size_t tensors() const noexcept { return tensors_; }
  /// The tensor of each output, in the configuration's order.
  [[nodiscard]] const std::vector<std::uint32_t>& outputs() const noexcept { return outputs_; }

 private:
  std::vector<step> steps_;
  std::vector<std::uint32_t> outputs_;
  std::size_t tensors_ = 0;
};

/// One request on its way through an ensemble. A value. Thread safety: none.
class ensemble_run {
 public:
  struct tensor {
    runtime::data_type type = runtime::data_type::f32;
    runtime::shaped_tensor value;
    bool is_made = false;
  };

  /// @param of Outlives it.
  explicit ensemble_run(const ensemble_plan& of)
      : plan_{&of}, tensors_(of.tensors()), has_begun_(of.steps().size()) {}

  /// Of an input, or of what a step made.
  void set(std::uint32_t which, runtime::data_type type, runtime::shaped_tensor value) {
    tensors_[which] = {type, std::move(value), true};
  }
  [[nodiscard]] const tensor& at(std::uint32_t which) const noexcept { return tensors_[which]; }
  /// Steps whose inputs are all there, each told once. O(ports).
  [[nodiscard]] std::vector<std::uint32_t> begin_ready();

 private:
  const ensemble_plan* plan_;
  std::vector<tensor> tensors_;
  std::vector<bool> has_begun_;
};

}  // namespace cohort::inference
