// SPDX-License-Identifier: Apache-2.0
/// @file
/// Combines a plan, an engine, a backend and models, for one kind of executor.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <registry/policies.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planned_service.hpp"

namespace cohort::inference {

/// The models of a plan under the server's names, with the latencies that network delays are
/// checked against.
/// @param make `make(name, latency)` returns a model without its SLO.
template <class Make>
std::vector<prepared_model> prepare_planned(const served_plan& p, double factor, Make make) {
  std::vector<prepared_model> out;
  for (std::uint32_t m = 0; m < p.is_served.size(); ++m) {
    if (!p.is_served[m]) continue;
    out.push_back(
        make(p.profiles.models[m].name, p.latency(model_id{m}, p.largest_size(m), factor)));
    out.back().meta.slo = from_ms(p.profiles.models[m].slo_ms);
  }
  return out;
}

/// How a partition schedules a model. One too small for the SLO gets an SLO that it can meet.
inline engine::model_config configure(const served_plan& p, model_id model, device_share size,
                                      double factor, const deferred::network_delays& d,
                                      std::uint32_t queue_capacity) {
  const latency_curve curve = p.latency(model, size, factor);
  const duration least = 2 * curve(1) + d.before(1) + d.after();
  return {.scheduling = {.latency = curve,
                         .slo = std::max(from_ms(p.profiles.models[model.index()].slo_ms), least),
                         .queue_capacity = queue_capacity,
                         .longest_wait = p.longest_wait[model.index()],
                         .slo_steers = true},
          .is_repeatable = true};
}

/// Serves a plan with a backend.
/// @param load `load(backend, model, gpu, size)` returns the backend's `prepared_model`.
/// @param factor Multiplies the measured latencies.
template <class Backend, class Load>
std::unique_ptr<model_service> serve_plan(const options& o, std::shared_ptr<const served_plan> plan,
                                          std::string description,
                                          const std::vector<prepared_model>& prepared,
                                          double factor, std::unique_ptr<Backend> backend,
                                          const Load& load, outcome_listener& listener,
                                          serve::metrics& counters) {
  const deferred::network_delays d = delays(o, prepared);
  std::vector<served_model> models;
  for (const prepared_model& m : prepared) {
    const model_id id{static_cast<std::uint32_t>(*plan->profiles.find(m.meta.name))};
    counters.add_model(id, m.meta.name, m.meta.version);
    models.push_back({id, m.meta, m.has_sizes});
  }
  for (std::uint32_t g = 0; g < plan->schedule.demand.gpus; ++g) counters.add_device(device_id{g});
  Backend& b = *backend;
  auto loader = [plan, factor, d, load, capacity = o.queue_capacity, &b](model_id m, device_id gpu,
                                                                         device_share size) {
    return engine::partition_model<typename Backend::prepared_model>{
        .config = configure(*plan, m, size, factor, d, capacity),
        .prepared = load(b, m, gpu, size)};
  };
  return registry::with_pooled_scheduler(o.policy, d, [&](auto scheduler) {
    using kind = planned_service<decltype(scheduler), Backend, decltype(loader)>;
    return std::unique_ptr<model_service>{std::make_unique<kind>(
        std::move(description), o, plan, std::move(models), std::move(scheduler),
        std::move(backend), std::move(loader), listener, counters)};
  });
}

/// One line per gpu-let: "plan: 50 % of device 0: lenet 20.0/s, bert_mini 5.0/s".
std::string describe(const served_plan& p);

/// Resources that must outlive the backend: an executor for each device (devices may share one) and
/// the models' weights on each executor.
template <class Executor>
struct planned_resources {
  using factory = models::any_model_factory<Executor>;
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<std::size_t> executor_of;                            ///< By device of the plan.
  std::vector<std::vector<std::unique_ptr<factory>>> factories{};  ///< By executor, then model.

  [[nodiscard]] std::vector<Executor*> by_device() const {
    std::vector<Executor*> out;
    for (const std::size_t e : executor_of) out.push_back(executors[e].get());
    return out;
  }
};
template <class Executor, class Backend>
struct planned_parts : planned_resources<Executor>, Backend {
  explicit planned_parts(planned_resources<Executor> r)
      : planned_resources<Executor>{std::move(r)}, Backend{this->by_device()} {}
};

/// The service with a plan on executors that compute.
/// @param make_factory As in `staged_parts::make_factory`.
template <class Executor>
std::unique_ptr<model_service> make_planned_staged_service(
    const options& o, std::shared_ptr<const served_plan> plan, std::span<const std::string> known,
    const std::string& description, const std::string& platform, planned_resources<Executor> made,
    const make_factory_function<Executor>& make_factory, outcome_listener& listener,
    serve::metrics& counters) {
  using backend =
      planned_parts<Executor, engine::executor_backend<Executor, models::any_model<Executor>>>;
  for (const std::string& name : plan->names()) {
    if (std::ranges::find(known, name) == known.end()) {
      throw config_error{fmt::format("--plan: {}: model '{}' is unknown: expected one of {}",
                                     o.plan, name, fmt::join(known, ", "))};
    }
  }
  check_names(o, plan->names());
  for (const auto& e : made.executors) {
    auto& here = made.factories.emplace_back();
    for (std::size_t m = 0; m < plan->is_served.size(); ++m) {
      const std::string& name = plan->profiles.models[m].name;
      const auto weights = o.weights.find(name);
      here.push_back(plan->is_served[m]
                         ? make_factory(name, *e, weights == o.weights.end() ? "" : weights->second)
                         : nullptr);
    }
  }
  const auto prepared = prepare_planned(
      *plan, o.profile_margin, [&](const std::string& name, const latency_curve& latency) {
        const auto& factory = *made.factories.front()[*plan->profiles.find(name)];
        const models::model_interface& info = factory.info();
        return prepared_model{.meta = {.name = name,
                                       .platform = platform,
                                       .inputs = info.inputs,
                                       .outputs = info.outputs,
                                       .max_size = info.max_size,
                                       .batches = factory.batches()},
                              .has_sizes = models::has_sizes(info),
                              .latency = latency};
      });
  const auto load = [max_batch = plan->max_batch](backend& b, model_id m, device_id gpu,
                                                  device_share size) {
    auto& factory = b.factories[b.executor_of[gpu.index()]][m.index()];
    return b.prepare_model(
        {.batch_max = max_batch, .sizes = factory->sizes(), .instance = factory->make(max_batch)},
        {.gpu = gpu, .share = size});
  };
  return serve_plan(o, plan, description, prepared, o.profile_margin,
                    std::make_unique<backend>(std::move(made)), load, listener, counters);
}

}  // namespace cohort::inference
