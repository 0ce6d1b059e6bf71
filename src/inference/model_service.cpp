// SPDX-License-Identifier: Apache-2.0
#include "model_service.hpp"

#include <cohort/engine/profile_backend.hpp>
#include <cohort/runtime/blas.hpp>

#include <models/timed_model.hpp>

#include <algorithm>
#include <formats/zoo/zoo.hpp>
#include <functional>
#include <iterator>
#include <numeric>
#include <thread>

#include "emulated_backend.hpp"
#include "repository_service.hpp"
#include "staged_service.hpp"

namespace cohort::inference {
namespace {

std::unique_ptr<model_service> make_host_service(const options& o, outcome_listener& listener,
                                                 serve::metrics& counters, const std::string& why) {
  if (!o.plan.empty()) return make_planned_host_service(o, listener, counters, why);
  const auto small = models::model_names();
  const std::vector<std::string> names = chosen_models(o, small, small);
  const unsigned cores = std::max(2U, std::thread::hardware_concurrency());
  const unsigned devices = o.devices > 0 ? o.devices : cores - 1;
  // Some tens of MB for each device, model and 16 rows of batch, mostly for unrolled convolutions.
  // A pipeline has an instance for each stage, and sets of boundary tensors.
  const std::size_t stages = o.pipeline.empty() ? 1 : 10;
  const std::size_t pool = (std::size_t{64} << 20U) + std::size_t{devices} * names.size() *
                                                          o.max_batch * stages *
                                                          (std::size_t{3} << 20U);
  return make_staged_service<runtime::host_executor>(
      o, listener, counters, names,
      {.description = fmt::format("host executor, {} device{}{}", devices, devices == 1 ? "" : "s",
                                  why.empty() ? "" : fmt::format(" (no GPU: {})", why)),
       .platform = "cohort_host",
       .machine = runtime::describe_host(runtime::blas_products()),
       .executor = std::make_unique<runtime::host_executor>(runtime::host_options{
           .pool_bytes = pool, .queue_depth = 8192, .products = runtime::blas_products()}),
       .devices = devices,
       .make_factory = [&](const std::string& name, runtime::host_executor& e,
                           const std::string& weights) {
         return models::make_host_factory(name, e, o.seed, weights);
       }});
}

std::unique_ptr<model_service> make_emulated_service(const options& o, outcome_listener& listener,
                                                     serve::metrics& counters) {
  if (!o.plan.empty()) return make_planned_emulated_service(o, listener, counters);
  std::vector<std::string> known;
  for (const formats::zoo_row& row : formats::zoo(o.zoo)) known.emplace_back(row.name);
  check_names(o, known);
  expects(o.weights.empty(), "--weights: emulated models have none");
  expects(o.pipeline.empty(), "--pipeline: emulated models have no stages");
  const std::vector<std::string>& names = o.models.empty() ? known : o.models;
  std::vector<prepared_model> prepared;
  for (const formats::zoo_row& row : formats::zoo(o.zoo)) {
    if (std::ranges::find(names, row.name) == names.end()) continue;
    const linear_latency latency{from_ms(row.beta_ms), from_ms(row.alpha_ms)};
    const auto slo = o.slo_ms.find(std::string{row.name});
    const duration limit = from_ms(slo == o.slo_ms.end() ? row.slo_ms : slo->second);
    std::uint32_t batch = 1;
    const std::uint32_t most = o.has_max_batch ? o.max_batch : 256;
    while (batch < most && latency(batch + 1) <= limit) ++batch;
    prepared.push_back({.meta = {.name = std::string{row.name},
                                 .platform = "cohort_emulated_" + o.zoo,
                                 .inputs = {{"input", runtime::data_type::f32, {1}}},
                                 .outputs = {},
                                 .slo = limit},
                        .latency = latency_curve{latency, batch}});
  }
  const unsigned devices = o.devices > 0 ? o.devices : 8;
  return registry::with_scheduler<engine::trial_thread>(
      o.policy, delays(o, prepared), [&](auto scheduler) {
        using kind = service_of<decltype(scheduler), engine::profile_backend>;
        auto s = std::make_unique<kind>(
            fmt::format("emulated executor, {} devices of zoo {}: takes time, computes nothing",
                        devices, o.zoo),
            o, std::move(scheduler), make_emulated_backend(o, devices), listener, counters);
        for (unsigned d = 0; d < devices; ++d) {
          s->add_device([](engine::profile_backend& b, device_id id) { b.add_device(id); });
        }
        for (const prepared_model& m : prepared) {
          s->add_model(m, o.queue_capacity, [&](engine::profile_backend& b, model_id id) {
            b.add_model(id, m.latency);
          });
        }
        return std::unique_ptr<model_service>{std::move(s)};
      });
}

/// `make(options, listener, counters)` creates the service.
constexpr registry::name_table executors{
    registry::row{"auto", "a GPU if there is one, else the host",
                  [](const options& o, outcome_listener& listener, serve::metrics& counters) {
                    const std::string why = models::why_no_gpu();
                    return why.empty() ? make_gpu_service(o, listener, counters)
                                       : make_host_service(o, listener, counters, why);
                  }},
    registry::row{"host", "the cores of this machine",
                  [](const options& o, outcome_listener& listener, serve::metrics& counters) {
                    return make_host_service(o, listener, counters, "");
                  }},
    registry::row{"cuda", "a GPU",
                  [](const options& o, outcome_listener& listener, serve::metrics& counters) {
                    if (const std::string why = models::why_no_gpu(); !why.empty()) {
                      throw config_error{
                          fmt::format("--executor: cuda is not possible here: {}", why)};
                    }
                    return make_gpu_service(o, listener, counters);
                  }},
    registry::row{"emulated", "no computation; batches take the measured time of --zoo's models",
                  make_emulated_service}};

}  // namespace

const registry::name_list& executor_names() {
  static const registry::name_list names = executors.list();
  return names;
}

std::unique_ptr<model_service> make_service(const options& o, outcome_listener& listener,
                                            serve::metrics& counters) {
  const registry::choice chosen = executor_names().choose("--executor", o.executor);
  if (!o.repository.empty()) {
    if (!o.plan.empty()) return make_planned_host_service(o, listener, counters, "");
    if (!o.pipeline.empty()) return make_repository_pipelines(o, listener, counters);
    return std::make_unique<repository_service>(o, listener, counters);
  }
  return executors.visit(chosen.row,
                         [&](const auto& row) { return row.make(o, listener, counters); });
}

std::vector<std::int64_t> reshaped(const std::vector<std::int64_t>& given,
                                   const std::vector<std::int64_t>& from,
                                   const std::vector<std::int64_t>& to) {
  if (from == to || given.size() != from.size()) return given;
  std::vector<std::int64_t> open;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == runtime::size_dimension) open.push_back(given[i]);
  }
  if (std::ranges::count(to, runtime::size_dimension) != std::ssize(open)) return given;
  std::vector<std::int64_t> other = to;
  auto next = open.begin();
  for (std::int64_t& d : other) {
    if (d == runtime::size_dimension) d = *next++;
  }
  const auto count = [](const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
  };
  return count(other) == count(given) ? other : given;
}

}  // namespace cohort::inference
