// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models of ONNX Runtime one behind the other as a staged model: `onnx_stages`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/onnx/model.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/staged_model.hpp>
#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::runtime::onnx {

/// What sessions run one behind the other are to a client: the inputs of the first, the outputs of
/// the last.
/// @param stages Not empty, none null.
/// @throws config_error If a session does not take what the one before it gives, in names, types,
/// shapes and order: names stage and tensor; or they differ in the largest size or in whether they
/// run rows together.
[[nodiscard]] inline model_interface interface_of(
    std::span<const std::shared_ptr<const session>> stages) {
  expects(!stages.empty(), "onnx_stages: stages must be at least 1");
  model_interface whole = stages.front()->interface();
  for (std::size_t i = 1; i < stages.size(); ++i) {
    const model_interface& from = stages[i - 1]->interface();
    const model_interface& to = stages[i]->interface();
    const std::string stage = "model '" + whole.name + "', stage " + std::to_string(i + 1) + ": ";
    if (from.outputs.size() != to.inputs.size()) {
      throw config_error{stage + std::to_string(to.inputs.size()) + " inputs: expected " +
                         std::to_string(from.outputs.size()) + ", those that stage " +
                         std::to_string(i) + " gives"};
    }
    for (std::size_t k = 0; k < to.inputs.size(); ++k) {
      if (from.outputs[k] == to.inputs[k]) continue;
      throw config_error{stage + "input '" + to.inputs[k].name + "' is not output '" +
                         from.outputs[k].name + "' of stage " + std::to_string(i) +
                         ": expected the same name, type and shape"};
    }
    // A stage whose tensors have no size has a largest size of 1.
    if (to.max_size != 1 && to.max_size != whole.max_size) {
      throw config_error{stage + "its largest size is " + std::to_string(to.max_size) +
                         ": expected that of the first, " + std::to_string(whole.max_size)};
    }
    if (stages[i]->has_batch() != stages.front()->has_batch()) {
      throw config_error{stage + "expected rows to run together in all stages, or in none"};
    }
  }
  whole.outputs = stages.back()->interface().outputs;
  return whole;
}

/// Sessions as the stages of one model, each an `onnx_model`: at boundary i are rows of what
/// session i − 1 gives and session i takes. Sessions may be shared by models. Thread safety: none;
/// a stage is used on one stream at a time. Models: `staged_model`.
template <executor Executor>
requires requirement::launches_host_work<Executor>
class onnx_stages {
 public:
  /// @param of As for `interface_of`.
  /// @param batch_max Largest number of rows of a slice; at least 1.
  /// @throws config_error As `interface_of` and `onnx_model`.
  /// @throws resource_error If the executor has no memory left for the work space.
  onnx_stages(Executor& e, std::span<const std::shared_ptr<const session>> of,
              std::uint32_t batch_max) {
    (void)interface_of(of);
    for (const std::shared_ptr<const session>& s : of) {
      stages_.push_back(std::make_unique<onnx_model<Executor>>(e, s, batch_max));
    }
  }

  [[nodiscard]] std::string_view name() const noexcept { return stages_.front()->name(); }
  [[nodiscard]] std::size_t stages() const noexcept { return stages_.size(); }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t boundary) const noexcept {
    return boundary == 0 ? stages_.front()->boundary_bytes(0)
                         : stages_[boundary - 1]->boundary_bytes(1);
  }
  /// @throws config_error As `onnx_model`; nothing was enqueued then.
  void enqueue(std::size_t stage, typename Executor::stream& stream, const slice& s) {
    stages_[stage]->enqueue(0, stream, s);
  }

 private:
  std::vector<std::unique_ptr<onnx_model<Executor>>> stages_;
};

}  // namespace cohort::runtime::onnx
