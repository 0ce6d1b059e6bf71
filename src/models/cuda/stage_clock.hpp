// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time of a model's stages on a GPU, by its events.
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
  stage_clock(runtime::cuda_executor& e, std::size_t marks) : executor_{e} {
    for (std::size_t i = 0; i < marks; ++i) {
      at_.push_back(runtime::cuda::event::make(runtime::cuda::event::timing::yes));
    }
  }
  void mark(runtime::cuda_executor::stream& s, std::size_t i) {
    executor_.launch(s, [&](runtime::cuda::stream_view v) { at_[i].record(v); });
  }
  [[nodiscard]] duration between(std::size_t i, std::size_t j) const {
    return runtime::cuda::event::between(at_[i].view(), at_[j].view());
  }

 private:
  runtime::cuda_executor& executor_;
  std::vector<runtime::cuda::event> at_;
};

}  // namespace cohort::engine
