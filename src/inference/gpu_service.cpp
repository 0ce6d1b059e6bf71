// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <models/cuda/registry.hpp>
#include <models/cuda/stage_clock.hpp>

#include "staged_service.hpp"

namespace cohort::inference {

std::unique_ptr<model_service> make_gpu_service(const options& o, outcome_listener& listener,
                                                serve::metrics& counters) {
  if (!o.plan.empty()) return make_planned_gpu_service(o, listener, counters);
  const auto small = models::model_names();
  const auto large = models::large_model_names();
  std::vector<std::string_view> known{small.begin(), small.end()};
  known.insert(known.end(), large.begin(), large.end());
  const std::vector<std::string> names = chosen_models(o, known, small);
  const runtime::cuda::device_description d = runtime::cuda::find_devices().devices.front();
  // Each device of the scheduler is a partition of the GPU; by default one covers the whole GPU.
  const unsigned devices = std::max(1U, o.devices);
  return make_staged_service<runtime::cuda_executor>(
      o, listener, counters, names,
      {.description = fmt::format("CUDA executor, {}, {} SMs in {} partition{}", d.name,
                                  d.multiprocessors, devices, devices == 1 ? "" : "s"),
       .platform = "cohort_cuda",
       .machine = fmt::format("{}, {} SMs", d.name, d.multiprocessors),
       .executor = std::make_unique<runtime::cuda_executor>(
           runtime::cuda_options{.pool_bytes = d.memory_bytes / 2}),
       .devices = devices,
       .make_factory = [&](const std::string& name, runtime::cuda_executor& e,
                           const std::string& weights) {
         return models::make_cuda_factory(name, e, o.seed, weights);
       }});
}

}  // namespace cohort::inference
