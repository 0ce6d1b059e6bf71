// SPDX-License-Identifier: Apache-2.0
/// @file
/// A chain of ONNX Runtime models as one staged model: `onnx_stages`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/onnx/model.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::runtime::onnx {

/// The interface that a chain of sessions has for a client: the inputs of the first and the outputs
/// of the last.
/// @param stages Not empty, none null.
/// @throws config_error If the inputs of a session are not the outputs of the one before it, in
/// names, types, shapes and order (the message names stage and tensor); or if they differ in the
/// largest size or in whether they run rows together.
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

/// Sessions as the stages of one model, each an `onnx_model`: the rows at boundary i are the
/// outputs of session i − 1 and the inputs of session i. Where an output of the whole model is
/// computed before its end there is an exit, with only such outputs in its rows. Sessions may be
/// shared by models. Thread safety: none; a stage is used on one stream at a time. Models:
/// `exiting_model`.
template <executor Executor>
  requires requirement::launches_host_work<Executor>
class onnx_stages {
 public:
  /// @param of As for `interface_of`.
  /// @param batch_max Largest number of rows of a slice; at least 1.
  /// @throws config_error As `interface_of` and `onnx_model`.
  /// @throws resource_error If the executor has no memory left for the work space.
  onnx_stages(Executor& e, std::span<const std::shared_ptr<const session>> of,
              std::uint32_t batch_max)
      : executor_{&e} {
    const model_interface whole = interface_of(of);
    const row_layout result{whole.outputs, whole.max_size};
    for (const std::shared_ptr<const session>& s : of) {
      stages_.push_back(std::make_unique<onnx_model<Executor>>(e, s, batch_max));
      exits_.emplace_back();
      if (stages_.size() < of.size()) exits_.back() = exit_of(s->interface(), whole, result);
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
  /// Ends the current run if it was given up. Any thread.
  void interrupt() noexcept {
    for (const auto& s : stages_) s->interrupt();
  }
  /// The model's outputs available after a stage, one bit each, for the first 63; 0 for the last
  /// stage.
  [[nodiscard]] std::uint64_t outputs_after(std::size_t stage) const noexcept {
    std::uint64_t there = 0;
    for (const moved_tensor& t : exits_[stage]) {
      if (t.output < 63) there |= std::uint64_t{1} << t.output;
    }
    return there;
  }
  [[nodiscard]] bool has_exit(std::size_t stage) const noexcept { return !exits_[stage].empty(); }
  void enqueue_exit(std::size_t stage, typename Executor::stream& stream, const slice& s) {
    const std::uint32_t max_size = stages_.front()->interface().max_size;
    const std::uint32_t size = s.size == 0 ? max_size : s.size;
    executor_->launch(stream, [this, stage, s, size] {
      for (std::uint32_t i = s.first; i < s.first + s.count; ++i) {
        for (const moved_tensor& t : exits_[stage]) {
          std::memcpy(s.output + i * s.output_stride + t.to, s.input + i * s.input_stride + t.from,
                      t.of.bytes(size));
        }
      }
    });
  }

 private:
  /// An output of the model in a row of a stage.
  struct moved_tensor {
    tensor_info of;
    std::size_t output;
    std::size_t from;
    std::size_t to;
  };

  static std::vector<moved_tensor> exit_of(const model_interface& stage,
                                           const model_interface& whole, const row_layout& result) {
    const row_layout row{stage.outputs, stage.max_size};
    std::vector<moved_tensor> all;
    for (std::size_t i = 0; i < whole.outputs.size(); ++i) {
      for (std::size_t k = 0; k < stage.outputs.size(); ++k) {
        if (stage.outputs[k] != whole.outputs[i]) continue;
        all.push_back({whole.outputs[i], i, row.offset(k), result.offset(i)});
      }
    }
    return all;
  }

  Executor* executor_;
  std::vector<std::unique_ptr<onnx_model<Executor>>> stages_;
  std::vector<std::vector<moved_tensor>> exits_;  // By stage; the last has none.
};

}  // namespace cohort::runtime::onnx
