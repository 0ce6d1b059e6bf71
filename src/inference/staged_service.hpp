// SPDX-License-Identifier: Apache-2.0
/// @file
/// Combines engine, scheduler, backend and models. Included by the sources that do so for one kind
/// of executor each.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/trial_thread.hpp>
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <models/measured_model.hpp>
#include <models/registry.hpp>
#include <registry/policies.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model_service.hpp"
#include "pipeline_service.hpp"
#include "prepared_models.hpp"
#include "service_observer.hpp"

namespace cohort::inference {

struct deliver {
  outcome_listener* listener;
  void operator()(request& r, outcome how) const {
    listener->ended(static_cast<engine::tensor_request&>(r), how);
  }
};

/// Number of an engine's devices that hang. Waits for its thread.
template <class Engine>
std::size_t hanging_in(Engine& engine) {
  std::size_t n = 0;
  engine.inspect([&](const auto& loop) { n = loop.core().health().hanging_devices(); });
  return n;
}

/// Copies the learned state of models, devices and timers into `out`, on the engine's thread.
template <class Loop>
void copy_state(const Loop& loop, const std::vector<model_id>& ids, service_state& out) {
  out.learned = deferred::copy_learned(loop.core().scheduler(), ids);
  out.arrival_delay = loop.arrival_delay();
  for (const auto& d : out.learned.devices) {
    out.health.push_back(loop.core().health().state(d.id));
  }
}

/// A service with one scheduler and one backend.
template <class Scheduler, class Backend>
class service_of final : public model_service {
 public:
  service_of(std::string description, const options& o, Scheduler scheduler,
             std::unique_ptr<Backend> backend, outcome_listener& listener, serve::metrics& counters,
             std::string notes = {}, std::optional<kept_settings> settings = {})
      : description_{std::move(description)},
        notes_{std::move(notes)},
        settings_{std::move(settings)},
        backend_{std::move(backend)},
        engine_{core_type{std::move(scheduler),
                          duration{0},
                          {{{}, &counters}, &out_of_service_, &suspended_},
                          o.health,
                          o.refusals},
                *backend_, engine::inline_completion{deliver{&listener}}},
        counters_{counters} {
    backend_->bind(engine_);
    if constexpr (requires { backend_->on_failure(std::ref(failures_)); }) {
      backend_->on_failure(std::ref(failures_));
    }
  }

  /// @param capacity Maximum number of batches that it runs at one time.
  template <class AddToBackend>
  void add_device(AddToBackend add, std::uint32_t capacity = 1) {
    engine_.add_device(
        [&](device_id d) {
          counters_.add_device(d);
          add(*backend_, d);
        },
        capacity);
    ++devices_;
  }
  template <class AddToBackend>
  void add_model(const prepared_model& m, std::uint32_t queue_capacity, AddToBackend add) {
    const model_id id = engine_.add_model(
        {.scheduling = {.latency = m.latency,
                        .slo = m.meta.slo,
                        .queue_capacity = queue_capacity,
                        .slo_steers = true},
         .is_repeatable = true},  // The model keeps no state between two requests.
        [&](model_id added) {
          counters_.add_model(added, m.meta.name, m.meta.version);
          suspended_.add(added, m.meta.name);
          add(*backend_, added);
        });
    models_.push_back({.id = id, .meta = m.meta, .has_sizes = m.has_sizes, .config = m.config});
    profiles_.push_back(m.latency);
  }

  [[nodiscard]] const std::vector<served_model>& models() const noexcept override {
    return models_;
  }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] const std::string& notes() const noexcept override { return notes_; }
  [[nodiscard]] const kept_settings* settings() const noexcept override {
    return settings_ ? &*settings_ : nullptr;
  }
  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    if (!has_device()) return refusal::no_device;  // Clients can try another server.
    if (is_suspended(r.model)) return refusal::model_suspended;
    return engine_.submit_quietly(r);
  }
  void wake_up() noexcept override { engine_.wake_up(); }
  void cancel(engine::tensor_request& r) override { engine_.cancel(r); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept override {
    return engine_.waiting(id);
  }
  [[nodiscard]] std::optional<service_state> inspect() override {
    std::vector<model_id> ids;
    service_state out;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const served_model& m = models_[i];
      ids.push_back(m.id);
      out.models.push_back(
          {.row = m.id, .name = m.meta.name, .profile = profiles_[i], .slo = m.meta.slo});
    }
    engine_.inspect([&](const auto& loop) { copy_state(loop, ids, out); });
    return out;
  }
  [[nodiscard]] bool has_device() const noexcept override { return out_of_service_ < devices_; }
  [[nodiscard]] bool is_suspended(model_id id) const noexcept override {
    return suspended_.has(id);
  }
  [[nodiscard]] std::size_t hanging_devices() override { return hanging_in(engine_); }
  void drain() noexcept override { engine_.drain(); }

 private:
  using core_type = engine::basic_engine_core<Scheduler, service_observer>;
  std::string description_;
  std::string notes_;
  std::optional<kept_settings> settings_;
  std::vector<served_model> models_;
  std::vector<latency_curve> profiles_;  // By index in `models_`.
  suspensions suspended_;
  failure_log failures_;
  std::uint32_t devices_ = 0;
  std::atomic<std::uint32_t> out_of_service_{0};  // Number of devices.
  std::unique_ptr<Backend> backend_;
  engine::basic_engine<core_type, Backend, engine::inline_completion<deliver>> engine_;
  serve::metrics& counters_;
};

/// @param most Upper limit: a stall during the measurement must not make SLOs impossible.
inline duration wake_margin(const options& o, duration most) {
  if (o.wake_margin_us >= 0) return from_ms(o.wake_margin_us / 1e3);
  // An idle machine at the start says little about a busy one, so there is a minimum.
  const duration measured = std::max<duration>(engine::measure_wake_delays().quantile(0.99),
                                               std::chrono::microseconds{200});
  return std::min(measured, most);
}

/// The part of a deadline that the scheduler must reserve. Otherwise a policy that waits until the
/// last moment turns any delay between client and server into a missed SLO.
inline deferred::network_delays delays(const options& o, const std::vector<prepared_model>& models,
                                       std::uint32_t capacity = 1) {
  duration tenth = unbounded;
  for (const prepared_model& m : models) tenth = std::min(tenth, m.meta.slo / 10);
  const deferred::network_delays d{.response = std::min(tenth, from_ms(o.http_margin_us / 1e3)),
                                   .wake_margin = wake_margin(o, tenth)};
  for (const prepared_model& m : models) {
    const duration least = capacity * m.latency(1) + d.before(1) + d.after();
    if (m.meta.slo < least) {
      throw config_error{
          fmt::format("{}: got {} ms for {}, expected at least {:.3f}",
                      o.plan.empty() ? "--slo-ms" : fmt::format("--plan: {}: SLO", o.plan),
                      to_ms(m.meta.slo), m.meta.name, to_ms(least))};
    }
  }
  return d;
}

/// The backend, which is destroyed before its resources.
template <class Executor, class Backend>
struct parts : resources<Executor>, Backend {
  explicit parts(resources<Executor> r)
      : resources<Executor>{std::move(r)}, Backend{*this->executor} {}
};

/// Checks that a model named by --pipeline is one of `known`.
inline void check_planned(const options& o, const std::string& name,
                          const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  throw config_error{fmt::format("--pipeline: {}: model '{}' is not served: expected one of {}",
                                 o.pipeline, name, fmt::join(known, ", "))};
}

/// Cuts models into stages and serves them. Each device runs up to `pipeline_entries` batches.
/// @param plans By model, in order.
template <class Executor>
std::unique_ptr<model_service> serve_pipelines(const options& o, outcome_listener& listener,
                                               serve::metrics& counters, std::string description,
                                               unsigned devices, resources<Executor> made,
                                               const prepared_models& ready,
                                               std::vector<formats::pipeline_plan> plans) {
  using both_parts = parts<Executor, pipelines<Executor>>;
  const std::vector<prepared_model>& prepared = ready.models;
  std::vector<pipelined_model> cut;
  std::string trials;
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    const std::string& name = prepared[i].meta.name;
    const std::uint32_t max_batch = prepared[i].latency.max_batch();
    const auto measure = [&, i](const std::vector<std::uint32_t>& sizes) {
      measured_stages m = find_stages(*ready.cache, prepared[i].key, prepared[i].holds, name, sizes,
                                      max_batch, *made.factories[i], *made.executor);
      if (m.was_kept) kept.push_back(name);
      return m;
    };
    cut.push_back(make_pipeline(name, std::move(plans[i]), *made.factories[i], max_batch, measure));
    description += (i == 0 ? "; pipelines: " : ", ") + describe(name, cut.back().plan);
    trials += describe_trial(name, cut.back());
  }
  if (!kept.empty()) {
    trials +=
        fmt::format("stages: {} as kept in {}\n", fmt::join(kept, ", "), ready.cache->folder());
  }
  return registry::with_scheduler<engine::trial_thread>(
      ready.policy, delays(o, prepared, o.pipeline_entries), [&](auto scheduler) {
        using kind = service_of<decltype(scheduler), both_parts>;
        auto both = std::make_unique<both_parts>(std::move(made));
        both_parts& p = *both;
        auto s = std::make_unique<kind>(description, o, std::move(scheduler), std::move(both),
                                        listener, counters, trials + ready.notes, ready.settings);
        std::vector<device_id> ids;
        for (unsigned d = 0; d < devices; ++d) {
          s->add_device(
              [&](both_parts& b, device_id id) {
                b.add_device(id, {.capacity = o.pipeline_entries});
                ids.push_back(id);
              },
              o.pipeline_entries);
        }
        for (std::size_t i = 0; i < prepared.size(); ++i) {
          s->add_model(prepared[i], o.queue_capacity, [&](both_parts& b, model_id id) {
            counters.add_pipeline(id, prepared[i].meta.name);
            row_counter observer;
            observer.into = &counters;
            observer.model = id;
            for (const device_id d : ids) {
              b.add_model(id, d,
                          instantiate(cut[i], prepared[i].meta.slo, *p.factories[i], *p.executor,
                                      prepared[i].latency.max_batch(), observer));
            }
          });
        }
        return std::unique_ptr<model_service>{std::move(s)};
      });
}

// Instantiated once, in repository_pipelines.cpp, because it takes long to compile.
extern template std::unique_ptr<model_service> serve_pipelines<runtime::host_executor>(
    const options&, outcome_listener&, serve::metrics&, std::string, unsigned,
    resources<runtime::host_executor>, const prepared_models&, std::vector<formats::pipeline_plan>);

/// Loads, profiles and cuts models on an executor.
template <class Executor>
std::unique_ptr<model_service> make_pipelined_service(const options& o, outcome_listener& listener,
                                                      serve::metrics& counters,
                                                      const std::vector<std::string>& names,
                                                      staged_parts<Executor> with) {
  auto given = formats::read_pipelines(o.pipeline);
  for (const auto& [name, plan] : given) check_planned(o, name, names);
  resources<Executor> made{std::move(with.executor), {}};
  const prepared_models ready = prepare(o, names, with, made, o.pipeline_entries);
  std::vector<formats::pipeline_plan> plans;
  for (const std::string& name : names) plans.push_back(std::move(given[name]));
  return serve_pipelines(o, listener, counters, with.description, with.devices, std::move(made),
                         ready, std::move(plans));
}

/// Loads and profiles models on an executor.
template <class Executor>
std::unique_ptr<model_service> make_staged_service(const options& o, outcome_listener& listener,
                                                   serve::metrics& counters,
                                                   const std::vector<std::string>& names,
                                                   staged_parts<Executor> with) {
  if (!o.pipeline.empty()) {
    return make_pipelined_service(o, listener, counters, names, std::move(with));
  }
  using both_parts =
      parts<Executor, engine::executor_backend<Executor, models::any_model<Executor>>>;
  resources<Executor> made{std::move(with.executor), {}};
  const prepared_models ready = prepare(o, names, with, made, 1);
  const std::vector<prepared_model>& prepared = ready.models;
  return registry::with_scheduler<engine::trial_thread>(
      ready.policy, delays(o, prepared), [&](auto scheduler) {
        using kind = service_of<decltype(scheduler), both_parts>;
        auto both = std::make_unique<both_parts>(std::move(made));
        both_parts& p = *both;
        auto s = std::make_unique<kind>(with.description, o, std::move(scheduler), std::move(both),
                                        listener, counters, ready.notes, ready.settings);
        const unsigned devices = with.devices;
        std::vector<device_id> ids;
        for (unsigned d = 0; d < devices; ++d) {
          s->add_device([&](both_parts& b, device_id id) {
            b.add_device(id, {.share = device_share{std::max(1U, 100 / devices)}});
            ids.push_back(id);
          });
        }
        for (std::size_t i = 0; i < prepared.size(); ++i) {
          s->add_model(prepared[i], o.queue_capacity, [&](both_parts& b, model_id id) {
            for (const device_id d : ids) {
              b.add_model(
                  id, d, {.batch_max = o.max_batch, .instance = p.factories[i]->make(o.max_batch)});
            }
          });
        }
        return std::unique_ptr<model_service>{std::move(s)};
      });
}

}  // namespace cohort::inference
