// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that runs models on executors: `executor_backend`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/whole_batch.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <concepts>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine {

/// How a model runs its batches on a device. Semantics: `lane` and `instance` are constructed from
/// a `device_spec` on any thread, then belong to the loop's. `join` attaches an instance to the
/// lane of its device. `launch` starts a batch there and reports its end; it may report single
/// requests earlier. `abandon` returns whether from now on nothing touches the requests of a batch;
/// its end is still reported. `warm_up` runs one row and calls `done`; `abandon_warm_up` asks that
/// row to end early, failing. If `is_driven`, an instance also has `next_wake()`, `advance(now)`
/// and `cancel(request, now)`. Models: `whole_batch`, `staged`.
template <class P, class E, class M>
concept batch_pipeline =
    requires(typename P::template instance<E, M>& x, typename P::template lane<E>& l,
             const deferred::batch& b, runtime::completion& done, time_point now) {
      typename P::template model<M>;  // Given by the user.
      typename P::template lane<E>;   // Shared by the models of a device.
      typename P::template instance<E, M>;
      { P::is_driven } -> std::convertible_to<bool>;
      x.join(l);
      { x.launch(l, b, now) } noexcept;
      { x.abandon(l, b, now) } noexcept -> std::same_as<bool>;
      x.warm_up(l, done, now);
      { x.abandon_warm_up(now) } noexcept;
    };

/// Runs batches of an engine on executors: a device of the engine is a share of one of them, with
/// an instance of each model on it. Requests must be `tensor_request`s with spans of the model's
/// sizes. Only preparing and adding allocate. Slow steps can be prepared on any thread and added
/// later, while other models are served. Thread safety: `prepare_*` from any thread; all else
/// except `bind` on the loop's thread; see the `setup` of `basic_engine::add_device` and
/// `add_model`. Must outlive everything it prepared. Models: `backend`; `driven_backend` if the
/// pipeline or the executor is.
/// @tparam Model A staged model for the executor's streams, one type for all, e.g. a base class.
/// @tparam Pipeline How a model runs its batches.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model,
          batch_pipeline<Executor, Model> Pipeline = whole_batch>
class executor_backend {
  using lane = typename Pipeline::template lane<Executor>;
  using instance = typename Pipeline::template instance<Executor, Model>;
  struct probe_end : runtime::completion {
    const end_report* report = nullptr;
    device_id id;
  };
  struct device {
    device(Executor& e, const device_spec& s, const end_report& r) : spec{s}, work{e, s, r} {
      probe.report = &r;
      probe.invoke = [](runtime::completion& c, bool failed) noexcept {
        const auto& self = static_cast<probe_end&>(c);
        self.report->probe_ended(self.id, failed);
      };
    }
    device_spec spec;
    probe_end probe;
    std::vector<std::unique_ptr<instance>> models;
    lane work;  // Destroyed first, which waits for the models' work.
  };

 public:
  static constexpr bool queues_batches = true;  ///< A `queueing_backend`.

  static constexpr bool is_driven = Pipeline::is_driven || runtime::driven_executor<Executor>;
  using model_type = typename Pipeline::template model<Model>;
  using prepared_device = std::unique_ptr<device>;
  using prepared_model = std::unique_ptr<instance>;

  /// @param executors One for each GPU; they must outlive the backend. At least one.
  explicit executor_backend(std::vector<Executor*> executors) : executors_{std::move(executors)} {}
  explicit executor_backend(Executor& executor) : executors_{&executor} {}
  executor_backend(const executor_backend&) = delete;
  executor_backend& operator=(const executor_backend&) = delete;

  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }
  /// Calls `listener(device, text)` from now on with the messages of executors and models about
  /// failed batches, on the thread that detects them; it must be quick and not throw. Set it before
  /// adding devices.
  void on_failure(std::function<void(device_id, std::string_view)> listener) {
    report_.on_failure(std::move(listener));
  }
  /// Stops all reports; the engine calls it at its end.
  void unbind() noexcept { report_.unbind(); }

  /// @throws config_error As the executor, and for a capacity that the pipeline does not support.
  [[nodiscard]] prepared_device prepare_device(const device_spec& spec = {}) {
    return std::make_unique<device>(*executors_[spec.gpu.index()], spec, report_);
  }
  void add_device(device_id id, prepared_device made) {
    if (id.index() >= devices_.size()) devices_.resize(id.index() + 1);
    made->work.set_id(id);
    made->probe.id = id;
    devices_[id.index()] = std::move(made);
  }
  void add_device(device_id id, const device_spec& spec = {}) {
    add_device(id, prepare_device(spec));
  }
  /// Takes away a device after the report of its last batch. Its destructor waits for its streams.
  [[nodiscard]] prepared_device take_device(device_id id) noexcept {
    return std::move(devices_[id.index()]);
  }

  /// @param on The device that will have the model.
  /// @throws config_error If sizes do not fit, or the executor has no memory left.
  [[nodiscard]] prepared_model prepare_model(model_type m, const device_spec& on = {}) {
    return std::make_unique<instance>(*executors_[on.gpu.index()], std::move(m), on, report_);
  }
  void add_model(model_id id, device_id on, prepared_model made) {
    device& d = *devices_[on.index()];
    made->join(d.work);
    if (id.index() >= d.models.size()) d.models.resize(id.index() + 1);
    d.models[id.index()] = std::move(made);
  }
  /// @throws config_error As `prepare_model`.
  void add_model(model_id id, device_id on, model_type m) {
    add_model(id, on, prepare_model(std::move(m), devices_[on.index()]->spec));
  }
  /// Takes away a model on a device after the report of its last batch.
  [[nodiscard]] prepared_model take_model(model_id id, device_id on) noexcept {
    return std::move(devices_[on.index()]->models[id.index()]);
  }
  /// Runs one row of zeros, behind the device's present work, then calls `done`.
  void warm_up(model_id id, device_id on, runtime::completion& done) {
    device& d = *devices_[on.index()];
    d.models[id.index()]->warm_up(d.work, done, now_);
  }

  void launch(const deferred::batch& b) noexcept {
    device& d = *devices_[b.device.index()];
    d.models[b.model.index()]->launch(d.work, b, now_);
  }
  [[nodiscard]] bool abandon(const deferred::batch& b) noexcept {
    device& d = *devices_[b.device.index()];
    return d.models[b.model.index()]->abandon(d.work, b, now_);
  }
  /// Runs one row of zeros of the model there. A device without the model cannot be probed.
  void probe(device_id id, model_id with) noexcept {
    device& d = *devices_[id.index()];
    const bool has_it = with.index() < d.models.size() && d.models[with.index()] != nullptr;
    if (!has_it) return report_.probe_ended(id, false);
    d.models[with.index()]->warm_up(d.work, d.probe, now_);
  }
  /// Ends a hung probe, if the model can.
  void abandon_probe(device_id id, model_id with) noexcept {
    device& d = *devices_[id.index()];
    const bool has_it = with.index() < d.models.size() && d.models[with.index()] != nullptr;
    if (has_it) d.models[with.index()]->abandon_warm_up(now_);
  }
  /// Load of the device's stream, if streams are threads of this process.
  [[nodiscard]] runtime::thread_load load_of(device_id id) const noexcept
    requires requires(const lane& l) { l.load(); }
  {
    return devices_[id.index()]->work.load();
  }
  void cancel(const request& r) noexcept
    requires(Pipeline::is_driven)
  {
    for (const auto& d : devices_) {
      if (d == nullptr || r.model.index() >= d->models.size()) continue;
      instance* const x = d->models[r.model.index()].get();
      if (x != nullptr && x->cancel(r, now_)) return;
    }
  }

  [[nodiscard]] time_point next_event() const noexcept
    requires(is_driven)
  {
    time_point next = next_of_executors();
    if constexpr (Pipeline::is_driven) {
      each_instance([&](const instance& x) { next = std::min(next, x.next_wake()); });
    }
    return next;
  }
  void advance(time_point now)
    requires(is_driven)
  {
    now_ = now;
    do {
      if constexpr (runtime::driven_executor<Executor>) {
        for (Executor* e : executors_) e->advance(now);
      }
      if constexpr (Pipeline::is_driven) each_instance([&](instance& x) { x.advance(now); });
    } while (next_of_executors() <= now);  // Work just started may take no time.
  }

  /// Observer of a model on a device, if the pipeline has one. On the loop's thread, or after the
  /// engine.
  [[nodiscard]] auto& observer(model_id id, device_id on = {}) noexcept
    requires(Pipeline::is_driven)
  {
    return devices_[on.index()]->models[id.index()]->observer();
  }

 private:
  template <class F>
  void each_instance(F f) const {
    for (const auto& d : devices_) {
      if (d == nullptr) continue;
      for (const auto& x : d->models) {
        if (x != nullptr) f(*x);
      }
    }
  }
  [[nodiscard]] time_point next_of_executors() const noexcept {
    time_point next = never;
    if constexpr (runtime::driven_executor<Executor>) {
      for (const Executor* e : executors_) next = std::min(next, e->next_event());
    }
    return next;
  }

  std::vector<Executor*> executors_;
  end_report report_;
  std::vector<std::unique_ptr<device>> devices_;
  time_point now_{};
};

}  // namespace cohort::engine
