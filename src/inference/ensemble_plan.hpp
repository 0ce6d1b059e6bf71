// SPDX-License-Identifier: Apache-2.0
/// @file
/// Several models run as one: `ensemble_plan`, `ensemble_run`.
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

/// The steps of an ensemble, with the tensors that each step reads and writes. Tensors are
/// numbered, the request's inputs first, in the order of the configuration.
class ensemble_plan {
 public:
  /// A model's input or output, and the ensemble's tensor that it is bound to.
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

  /// @param c Must have steps. @param file Named in errors. O(ports log tensors + steps²).
  /// @throws formats::input_error If an input or output has no type or shape, a step has no inputs
  /// or outputs, a tensor has no producer or two, or steps wait for each other.
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

/// The progress of one request through an ensemble. A value. Thread safety: none.
class ensemble_run {
 public:
  struct tensor {
    runtime::data_type type = runtime::data_type::f32;
    runtime::shaped_tensor value;
    bool is_made = false;
  };

  /// @param of Must outlive this.
  explicit ensemble_run(const ensemble_plan& of)
      : plan_{&of}, tensors_(of.tensors()), has_begun_(of.steps().size()) {}

  /// Sets an input of the request, or an output of a step.
  void set(std::uint32_t which, runtime::data_type type, runtime::shaped_tensor value) {
    tensors_[which] = {type, std::move(value), true};
  }
  [[nodiscard]] const tensor& at(std::uint32_t which) const noexcept { return tensors_[which]; }
  /// The steps that have all their inputs; returns each step once. O(ports).
  [[nodiscard]] std::vector<std::uint32_t> begin_ready();

 private:
  const ensemble_plan* plan_;
  std::vector<tensor> tensors_;
  std::vector<bool> has_begun_;
};

}  // namespace cohort::inference
