// SPDX-License-Identifier: Apache-2.0
/// @file
/// Times of a model's stages on a GPU, by its events.
#pragma once

#include <cohort/engine/stage_clock.hpp>
#include <cohort/runtime/cuda/event.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <cstddef>
#include <vector>

namespace cohort::engine {

template <>
class stage_clock<runtime::cuda_executor> {
 public:
  stage_clock(runtime::cuda_executor& e, std::size_t marks) : executor_{e}, at_(marks) {}
  void mark(runtime::cuda_executor::stream& s, std::size_t i) {
    // Events are made here, where the executor's device is current.
    executor_.launch(s, [&](runtime::cuda::stream_view v) {
      using runtime::cuda::event;
      if (!at_[i]) at_[i] = event::make(event::timing::yes);
      at_[i].record(v);
    });
  }
  [[nodiscard]] duration between(std::size_t i, std::size_t j) const {
    return runtime::cuda::event::between(at_[i].view(), at_[j].view());
  }

 private:
  runtime::cuda_executor& executor_;
  std::vector<runtime::cuda::event> at_;
};

}  // namespace cohort::engine
