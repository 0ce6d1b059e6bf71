// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <fmt/format.h>

#include "../measured_pair.hpp"
#include "registry.hpp"
#include "stage_clock.hpp"

namespace cohort::models {

std::unique_ptr<timed_pair> pair_on_gpu(const pair_timing_plan& p) {
  if (const std::string reason = why_no_gpu(); !reason.empty()) throw resource_error{reason};
  const runtime::cuda::device_description d = runtime::cuda::find_devices().devices.front();
  return std::make_unique<measured_pair<runtime::cuda_executor>>(
      std::make_unique<runtime::cuda_executor>(
          runtime::cuda_options{.pool_bytes = d.memory_bytes / 2}),
      p, fmt::format("{}, {} SMs", d.name, d.multiprocessors),
      [](runtime::cuda_executor& e, const pair_timing_plan& plan, std::size_t side) {
        return make_cuda_factory(plan.models[side], e, plan.seed + side);
      });
}

}  // namespace cohort::models
