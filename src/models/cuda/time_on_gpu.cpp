// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <fmt/format.h>

#include "../measured_model.hpp"
#include "registry.hpp"
#include "stage_clock.hpp"

namespace cohort::models {

std::string why_no_gpu() {
  const runtime::cuda::inventory found = runtime::cuda::find_devices();
  return found.devices.empty() ? found.reason : runtime::cuda::why_no_blas();
}

std::unique_ptr<timed_model> time_on_gpu(const timing_plan& p) {
  if (const std::string reason = why_no_gpu(); !reason.empty()) throw resource_error{reason};
  const runtime::cuda::device_description d = runtime::cuda::find_devices().devices.front();
  auto executor = std::make_unique<runtime::cuda_executor>(
      runtime::cuda_options{.pool_bytes = d.memory_bytes / 2});
  const auto make = [](runtime::cuda_executor& e, const timing_plan& plan) {
    return make_cuda_factory(plan.model, e, plan.seed);
  };
  return std::make_unique<timed_model_on<runtime::cuda_executor, decltype(make)>>(
      std::move(executor), p, fmt::format("{}, {} SMs", d.name, d.multiprocessors), d.l2_bytes,
      make);
}

}  // namespace cohort::models
