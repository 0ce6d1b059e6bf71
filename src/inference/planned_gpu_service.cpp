// SPDX-License-Identifier: Apache-2.0
// The service with a plan on GPUs, where partitions are green contexts.
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>
#include <cohort/runtime/cuda/partition.hpp>

#include <models/cuda/registry.hpp>

#include "planned_parts.hpp"

namespace cohort::inference {

std::unique_ptr<model_service> make_planned_gpu_service(const options& o,
                                                        outcome_listener& listener,
                                                        serve::metrics& counters) {
  auto plan = read_plan(o);
  const auto found = runtime::cuda::find_devices().devices;
  if (plan.schedule.demand.gpus > found.size()) {
    throw config_error{fmt::format("--plan: {}: $.gpus: got {}, expected at most {}", o.plan,
                                   plan.schedule.demand.gpus, found.size())};
  }
  // Plans count shares in percent, devices in steps.
  const runtime::cuda::device_description& first = found.front();
  std::string shares;
  for (const std::uint32_t pct : plan.schedule.demand.sizes) {
    if (pct == 100 || first.partition_steps == 0) continue;
    shares += fmt::format(
        "{} {} % = {}", shares.empty() ? "" : ",", pct,
        runtime::cuda::steps_of(device_share{pct}, first.partition_steps) * first.partition_step);
  }
  if (!shares.empty()) {
    shares = fmt::format("cuda: a partition has whole steps of {} of {} multiprocessors:{}\n",
                         first.partition_step, first.multiprocessors, shares);
  }
  plan.notes = describe(plan) + shares + plan.notes;
  planned_resources<runtime::cuda_executor> made;
  for (std::size_t g = 0; g < plan.schedule.demand.gpus; ++g) {
    made.executor_of.push_back(made.executors.size());
    made.executors.push_back(std::make_unique<runtime::cuda_executor>(
        runtime::cuda_options{.device = found[g].index, .pool_bytes = found[g].memory_bytes / 2}));
  }
  const auto small = models::model_names();
  const auto large = models::large_model_names();
  std::vector<std::string> known{small.begin(), small.end()};
  known.insert(known.end(), large.begin(), large.end());
  const auto shared = std::make_shared<const served_plan>(std::move(plan));
  return make_planned_staged_service<runtime::cuda_executor>(
      o, shared, known,
      fmt::format("CUDA executor, a plan of {} GPUs ({})", shared->schedule.demand.gpus,
                  found.front().name),
      "cohort_cuda", std::move(made),
      [seed = o.seed](const std::string& name, runtime::cuda_executor& e,
                      const std::string& weights) {
        return models::make_cuda_factory(name, e, seed, weights);
      },
      listener, counters);
}

}  // namespace cohort::inference
