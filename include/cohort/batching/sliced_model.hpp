// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model with stages that are runs of another model's operators, as a slicing defines them.
#pragma once

#include <cohort/batching/slicer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace cohort::batching {

/// Stage i runs the operators [ends[i − 1], ends[i]) of a model, which is itself a list of stages.
/// Data between operators of one stage alternates between two buffers of the instance, so an
/// instance may work on one stage at a time. The model's exits inside a stage are not exits of this
/// model. Thread safety: as the model's. Models: `staged_model`; `exiting_model` if the model does.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model>
class sliced_model {
 public:
  /// @param batch_max Slots of the batches; at least 1.
  /// @throws config_error If the ends do not increase up to the number of the model's stages, or
  ///         the executor lacks the memory.
  sliced_model(Executor& e, std::unique_ptr<Model> model, slicing ends, std::uint32_t batch_max)
      : model_{std::move(model)}, ends_{std::move(ends)} {
    expects(batch_max >= 1, "sliced_model: batch_max must be at least 1");
    std::size_t from = 0;
    std::size_t row = 0;
    for (const std::size_t end : ends_) {
      expects(end > from, "sliced_model: ends must increase");
      for (std::size_t b = from + 1; b < end; ++b) row = std::max(row, model_->boundary_bytes(b));
      from = end;
    }
    expects(from == model_->stages(), "sliced_model: the last end must be the model's");
    if (row == 0) return;
    for (auto& b : between_) b = e.allocate(row * batch_max);
  }

  [[nodiscard]] std::string_view name() const { return model_->name(); }
  [[nodiscard]] std::size_t stages() const noexcept { return ends_.size(); }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const {
    return model_->boundary_bytes(i == 0 ? 0 : ends_[i - 1]);
  }
  void enqueue(std::size_t stage, typename Executor::stream& s, const runtime::slice& x) {
    const std::size_t first = stage == 0 ? 0 : ends_[stage - 1];
    const std::size_t last = ends_[stage] - 1;
    for (std::size_t i = first; i <= last; ++i) {
      runtime::slice part = x;
      if (i > first) {
        part.input = reinterpret_cast<std::byte*>(between_[(i - 1) % 2].data());
        part.input_stride = model_->boundary_bytes(i);
      }
      if (i < last) {
        part.output = reinterpret_cast<std::byte*>(between_[i % 2].data());
        part.output_stride = model_->boundary_bytes(i + 1);
      }
      model_->enqueue(i, s, part);
    }
  }
  /// Ends the current run if the model is able to and the run was given up. Any thread.
  void interrupt() noexcept
    requires requires(Model& m) { m.interrupt(); }
  {
    model_->interrupt();
  }
  [[nodiscard]] bool has_exit(std::size_t stage) const
    requires runtime::requirement::tells_exits<Model>
  {
    return model_->has_exit(ends_[stage] - 1);
  }
  void enqueue_exit(std::size_t stage, typename Executor::stream& s, const runtime::slice& x)
    requires runtime::exiting_model<Model, typename Executor::stream>
  {
    model_->enqueue_exit(ends_[stage] - 1, s, x);
  }

 private:
  std::unique_ptr<Model> model_;
  slicing ends_;
  std::array<typename Executor::buffer, 2> between_;
};

}  // namespace cohort::batching
