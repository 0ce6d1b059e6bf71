// SPDX-License-Identifier: Apache-2.0
// Services with a plan on the host and on emulated devices.
#include "planned_service.hpp"

#include <cohort/core/error.hpp>
#include <cohort/engine/profile_backend.hpp>
#include <cohort/runtime/blas.hpp>

#include <algorithm>
#include <cmath>
#include <serve/log.hpp>
#include <thread>

#include "emulated_backend.hpp"
#include "onnx_loader.hpp"
#include "planned_parts.hpp"

namespace cohort::inference {
namespace {

/// Applies the config.pbtxt of each served model, except its SLO, which the plan has fixed. Warns
/// of a different SLO, and of batches that the plan relies on but the configuration forbids.
void follow_configs(served_plan& p, const std::string& repository) {
  for (const formats::repository_model& r : formats::scan_repository(repository)) {
    const auto m = p.profiles.find(r.name);
    if (!m || !p.is_served[*m] || !r.config) continue;
    const formats::model_config& c = *r.config;
    if (c.max_batch_size.value_or(0) > 0) {
      p.most_batch[*m] = std::min(p.max_batch, *c.max_batch_size);
    }
    p.longest_wait[*m] = c.longest_wait();
    for (const auto* tensors : {&c.inputs, &c.outputs}) {
      for (const formats::config_tensor& t : *tensors) {
        if (!t.reshape) continue;
        throw config_error{fmt::format("{}: reshape of '{}' is not done with --plan: expected none",
                                       r.config_file, t.name)};
      }
    }
    if (!c.batching && c.max_batch_size.value_or(0) > 0) {
      p.notes +=
          fmt::format("plan: model '{}' is batched as planned, though {} has no dynamic_batching\n",
                      r.name, r.config_file);
    }
    const double slo_ms = p.profiles.models[*m].slo_ms;
    if (c.slo && std::abs(to_ms(*c.slo) - slo_ms) > 1e-6) {
      p.notes += fmt::format("plan: model '{}': SLO {} ms, as slo.csv says: {} says {} ms\n",
                             r.name, slo_ms, r.config_file, to_ms(*c.slo));
    }
    for (const packing::gpulet& g : p.schedule.plan) {
      for (const packing::placed_model& placed : g.models) {
        if (placed.model.index() != *m || placed.batch <= p.most_batch[*m]) continue;
        p.notes += fmt::format("plan: model '{}' is planned in batches of {}: {} allows {}\n",
                               r.name, placed.batch, r.config_file, p.most_batch[*m]);
      }
    }
  }
}

}  // namespace

std::string describe(const served_plan& p) {
  std::string text;
  for (const packing::gpulet& g : p.schedule.plan) {
    text += fmt::format("plan: {} % of device {}:", g.size.percent(), g.gpu.value());
    for (const packing::placed_model& m : g.models) {
      text += fmt::format("{} {} {:.1f}/s", &m == &g.models.front() ? "" : ",",
                          p.profiles.models[m.model.index()].name, m.rate_rps);
    }
    text += '\n';
  }
  return text;
}

std::unique_ptr<model_service> make_planned_emulated_service(const options& o,
                                                             outcome_listener& listener,
                                                             serve::metrics& counters) {
  auto plan = read_plan(o);
  plan.notes = describe(plan) + plan.notes;
  check_names(o, plan.names());
  expects(o.weights.empty(), "--weights: emulated models have none");
  const auto prepared =
      prepare_planned(plan, 1, [](const std::string& name, latency_curve latency) {
        return prepared_model{.meta = {.name = name,
                                       .platform = "cohort_emulated",
                                       .inputs = {{"input", runtime::data_type::f32, {1}}},
                                       .outputs = {}},
                              .latency = std::move(latency)};
      });
  const auto shared = std::make_shared<const served_plan>(std::move(plan));
  const auto load = [shared](engine::profile_backend&, model_id m, device_id, device_share size) {
    return shared->latency(m, size, 1);
  };
  const auto parts = static_cast<std::uint32_t>(shared->schedule.plan.size());
  return serve_plan(o, shared,
                    fmt::format("emulated executor, a plan of {} devices: takes time, computes "
                                "nothing",
                                shared->schedule.demand.gpus),
                    prepared, 1, make_emulated_backend(o, parts), load, listener, counters);
}

std::unique_ptr<model_service> make_planned_host_service(const options& o,
                                                         outcome_listener& listener,
                                                         serve::metrics& counters,
                                                         const std::string& why_no_gpu) {
  auto plan = read_plan(o);
  if (!o.repository.empty()) follow_configs(plan, o.repository);
  const std::uint32_t devices = plan.schedule.demand.gpus;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  std::string shares;
  for (const std::uint32_t pct : plan.schedule.demand.sizes) {
    shares +=
        fmt::format("{} {} % = {}", shares.empty() ? "" : ",", pct, std::ceil(pct / 100.0 * cores));
  }
  plan.notes = describe(plan) +
               fmt::format("host: a partition is one thread, kept to its share of {} cores:{}\n",
                           cores, shares) +
               plan.notes;
  // While plans change, the partitions of both may exist. As in a service without a plan, each
  // instance takes some tens of MB for 16 rows of batch.
  const std::size_t instances =
      std::size_t{2} * devices * plan.schedule.demand.max_gpulets_per_gpu * plan.names().size();
  const std::size_t pool = (std::size_t{64} << 20U) +
                           instances * plan.max_batch * (std::size_t{3} << 20U) +
                           (o.repository.empty() ? 0 : o.model_memory_mb * 1'000'000);
  planned_resources<runtime::host_executor> made;
  made.executors.push_back(std::make_unique<runtime::host_executor>(runtime::host_options{
      .pool_bytes = pool, .queue_depth = 8192, .products = runtime::blas_products()}));
  made.executor_of.assign(devices, 0);  // All devices of the plan are this machine.
  const auto shared = std::make_shared<const served_plan>(std::move(plan));
  const std::string why = why_no_gpu.empty() ? "" : fmt::format(" (no GPU: {})", why_no_gpu);
  const std::string description =
      fmt::format("host executor, a plan of {} device{}{}", devices, devices == 1 ? "" : "s", why);
  if (o.repository.empty()) {
    const auto known = models::model_names();
    return make_planned_staged_service<runtime::host_executor>(
        o, shared, std::vector<std::string>{known.begin(), known.end()}, description, "cohort_host",
        std::move(made),
        [seed = o.seed](const std::string& name, runtime::host_executor& e,
                        const std::string& weights) {
          return models::make_host_factory(name, e, seed, weights);
        },
        listener, counters);
  }
  std::vector<std::string> known;
  for (const formats::repository_model& m : formats::scan_repository(o.repository)) {
    known.push_back(m.name);
  }
  return make_planned_staged_service<runtime::host_executor>(
      o, shared, known, description, onnx_platform, std::move(made),
      [&o, with = onnx_backend::open(o)](const std::string& name, runtime::host_executor& e,
                                         const std::string& /*weights*/) {
        const formats::repository_model m = formats::scan_model(o.repository, name);
        if (m.versions.empty()) throw config_error{m.problem};
        for (const std::string& note : notes_on(m, with, o)) serve::log_warning(note);
        loaded_version loaded = load_version(m, m.versions.back(), with, e, nullptr, true);
        return std::move(loaded.factory);
      },
      listener, counters);
}

}  // namespace cohort::inference
