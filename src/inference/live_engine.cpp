// SPDX-License-Identifier: Apache-2.0
#include "live_engine.hpp"

#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/trial_thread.hpp>

#include <registry/policies.hpp>

#include <algorithm>
#include <atomic>
#include <serve/barrier.hpp>
#include <string>
#include <utility>
#include <vector>

#include "service_observer.hpp"
#include "staged_service.hpp"

namespace cohort::inference {
namespace {

/// The engine's models by id, empty where there is none. Only for the engine's thread.
using engine_models = std::vector<std::optional<service_state::model>>;

/// Counts events of an engine's model under the model that clients see.
struct live_observer : service_observer {
  const engine_models* models = nullptr;

  void dispatched(dispatch_event e, time_point at) noexcept {
    if (const auto row = shown(e.model)) {
      e.model = *row;
      service_observer::dispatched(e, at);
    }
  }
  void retried(const request& r, time_point) const noexcept {
    if (const auto row = shown(r.model)) into->retries.add(1, row->index());
  }
  void model_suspended(model_id m, duration lasts, time_point) const noexcept {
    suspended->note(m, lasts);
    if (const auto row = shown(m)) into->suspensions.add(1, row->index());
  }

 private:
  /// Nothing if the model has been removed.
  [[nodiscard]] std::optional<model_id> shown(model_id m) const noexcept {
    const auto& known = (*models)[m.index()];
    return known ? std::optional{known->row} : std::nullopt;
  }
};

template <class Scheduler>
class live_engine_of final : public live_engine {
 public:
  live_engine_of(const options& o, unsigned devices, std::uint32_t models,
                 const deferred::network_delays& delays, Scheduler scheduler,
                 runtime::host_executor& executor, outcome_listener& listener,
                 serve::metrics& counters)
      : delays_{delays},
        models_(models),
        backend_{executor},
        engine_{core_type{std::move(scheduler),
                          duration{0},
                          {{{{}, &counters}, &out_of_service_, &suspended_}, &models_},
                          o.health,
                          o.refusals},
                backend_,
                engine::inline_completion{deliver{&listener}},
                {.max_models = models}} {
    backend_.bind(engine_);
    backend_.on_failure(std::ref(failures_));
    for (unsigned i = 0; i < devices; ++i) {
      specs_.push_back({.share = device_share{std::max(1U, 100 / devices)}});
      ids_.push_back(engine_.add_device([&](device_id d) {
        counters.add_device(d);
        backend_.add_device(d, specs_.back());
      }));
    }
  }
  ~live_engine_of() override {
    engine_.drain();
    engine_.join();  // Its last outcomes use members that are destroyed before it.
  }

  [[nodiscard]] duration least_slo(const latency_curve& latency) const override {
    return latency(1) + delays_.before(1) + delays_.after();
  }
  model_id add(const live_model& m, owner shown_as, models::host_model_factory& factory) override {
    std::vector<typename backend::prepared_model> prepared;
    for (const engine::device_spec& on : specs_) {
      prepared.push_back(backend_.prepare_model({.batch_max = m.batch_max,
                                                 .sizes = factory.sizes(),
                                                 .instance = factory.make(m.batch_max)},
                                                on));
    }
    return engine_.add_model({.scheduling = {.latency = m.latency,
                                             .slo = m.slo,
                                             .queue_capacity = m.queue_capacity,
                                             .longest_wait = m.longest_wait,
                                             .slo_steers = true},
                              .is_repeatable = true,
                              .longest_run = m.longest_run},
                             [&](model_id added) {
                               suspended_.add(added, m.name);
                               for (std::size_t i = 0; i < ids_.size(); ++i) {
                                 backend_.add_model(added, ids_[i], std::move(prepared[i]));
                               }
                               models_[added.index()] = {
                                   .row = model_id{static_cast<std::uint32_t>(shown_as->index())},
                                   .name = m.name,
                                   .profile = m.latency,
                                   .slo = m.slo,
                                   .counted = shown_as};
                             });
  }
  void remove(model_id m, std::function<void(remains)> gone) override {
    engine_.remove_model(m, [this, m, gone = std::move(gone)] {
      // On the engine's thread, which no exception may end.
      serve::guarded("inference_server", "a model is not freed", [&] {
        auto left = std::make_shared<std::vector<typename backend::prepared_model>>();
        for (const device_id d : ids_) left->push_back(backend_.take_model(m, d));
        models_[m.index()].reset();
        gone(std::move(left));
      });
    });
  }

  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    if (!has_device()) return refusal::no_device;  // Clients can try another server.
    if (is_suspended(r.model)) return refusal::model_suspended;
    return engine_.submit_quietly(r);
  }
  void wake_up() noexcept override { engine_.wake_up(); }
  void cancel(engine::tensor_request& r) override { engine_.cancel(r); }
  [[nodiscard]] std::uint32_t waiting(model_id m) const noexcept override {
    return engine_.waiting(m);
  }
  [[nodiscard]] bool has_device() const noexcept override { return out_of_service_ < ids_.size(); }
  [[nodiscard]] bool is_suspended(model_id m) const noexcept override { return suspended_.has(m); }
  [[nodiscard]] service_state inspect() override {
    service_state out;
    engine_.inspect([&](const auto& loop) {
      std::vector<model_id> ids;
      for (model_id id{0}; id.index() < models_.size(); id = model_id{id.value() + 1}) {
        if (!models_[id.index()] || !loop.is_accepting(id)) continue;
        ids.push_back(id);
        out.models.push_back(*models_[id.index()]);
      }
      copy_state(loop, ids, out);
    });
    return out;
  }
  [[nodiscard]] std::size_t hanging_devices() override { return hanging_in(engine_); }
  [[nodiscard]] unsigned devices() const noexcept override {
    return static_cast<unsigned>(ids_.size());
  }
  void drain() noexcept override { engine_.drain(); }

 private:
  using core_type = engine::basic_engine_core<Scheduler, live_observer>;
  using backend = engine::executor_backend<runtime::host_executor, models::host_model>;

  deferred::network_delays delays_;
  engine_models models_;
  std::atomic<std::uint32_t> out_of_service_{0};  // Number of devices.
  suspensions suspended_;
  failure_log failures_;
  std::vector<engine::device_spec> specs_;
  std::vector<device_id> ids_;
  backend backend_;
  engine::basic_engine<core_type, backend, engine::inline_completion<deliver>> engine_;
};

}  // namespace

std::unique_ptr<live_engine> make_live_engine(const options& o, unsigned devices,
                                              std::uint32_t models,
                                              runtime::host_executor& executor,
                                              outcome_listener& listener,
                                              serve::metrics& counters) {
  const deferred::network_delays delays{
      .response = from_ms(o.http_margin_us / 1e3),
      .wake_margin = wake_margin(o, std::chrono::milliseconds{1})};
  return registry::with_scheduler<engine::trial_thread>(
      o.policy, delays, [&](auto scheduler) -> std::unique_ptr<live_engine> {
        return std::make_unique<live_engine_of<decltype(scheduler)>>(
            o, devices, models, delays, std::move(scheduler), executor, listener, counters);
      });
}

}  // namespace cohort::inference
