// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the engine in virtual time, with devices as profiled or as perturbed by `reality`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/device_course.hpp>
#include <cohort/core/noise_source.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/sim/arrivals.hpp>
#include <cohort/sim/network_jitter.hpp>
#include <cohort/sim/recorder.hpp>
#include <cohort/sim/request_pool.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Options of a run.
struct run_options {
  double rate = 0;  ///< Requests a second over all models; above 0. Ignored for traces.
  std::uint64_t seed = 1;
  bool record_dispatches = false;
  engine::refusal_options refusals{};
};

/// Counts of events in an interval.
struct recent_events {
  std::vector<std::uint64_t> arrived{};  ///< By model.
  std::uint64_t ended = 0;               ///< Including refused.
  std::uint64_t bad = 0;                 ///< Of these, dropped, late, failed or refused.
  duration busy{0};                      ///< Time of dispatched batches.
};

/// Drives an engine core through a workload: the simulated code is the serving code. Arrivals of an
/// instant come first, then completions, then timers. Arrivals continue past the measured part
/// until every measured request has ended; requests of hung batches end when the engine abandons
/// the batches. Models are repeatable. Policies see what they see in a server: profiles, arrivals
/// and completions. Pools only matter for schedulers that have them. Deterministic. Single use:
/// construct, `run`.
template <deferred::batch_scheduler Scheduler>
class simulation {
 public:
  simulation(const workload& w, Scheduler scheduler, run_options options)
      : workload_{w},
        options_{options},
        core_{std::move(scheduler), w.network.response, {}, {}, options.refusals},
        arrivals_{w, options.rate, options.seed},
        completions_{w.devices},
        probes_{w.devices},
        noise_{w.reality.noise, options.seed, w.reality.models},
        lateness_{w.reality.timers, options.seed},
        jitter_{w.jitter, options.seed},
        recorder_{w, options.rate, options.record_dispatches} {
    drawn_.devices.resize(w.devices);
    recent_.arrived.resize(w.models.size());
    for (std::uint32_t i = 0; i < w.models.size(); ++i) {
      drawn_.models.push_back({.bias = noise_.bias(model_id{i})});
    }
    for (std::uint32_t i = 0; i < w.devices; ++i) {
      devices_.push_back({.course = device_course{w.reality.faults, device_id{i}}});
    }
    std::uint32_t first = 0;
    for (const device_class& c : w.classes) {
      for (std::uint32_t i = first; i < first + c.count; ++i) devices_[i].factor = c.factor;
      first += c.count;
    }
    core_.send_ahead(true);  // Simulated devices queue a second batch, like a server's.
    add_devices();
    add_models();
  }

  /// Continues until just before an instant. @returns Whether there is more to do after it.
  /// @throws lost_request If a measured request never ends.
  /// @param progress Called now and then with the simulated time, for long runs.
  template <class Progress>
  bool run_until(time_point until, Progress&& progress) {
    for (;;) {
      const time_point now =
          std::min({arrivals_.next(), completions_.next(), probes_.next(), next_wake()});
      if (recorder_.is_over(now, requests_)) return false;
      if (now >= until) return true;
      while (arrivals_.next() == now) arrive(now);
      for (std::uint32_t d; (d = completions_.pop_due(now)) != timer_queue::none;) finish(d, now);
      for (std::uint32_t d; (d = probes_.pop_due(now)) != timer_queue::none;) {
        core_.on_probe(device_id{d}, devices_[d].probe_fails, now, *this);
      }
      clock_ = now;
      core_.advance(now, *this);
      if (now >= report_) {
        progress(now);
        report_ = now + std::chrono::milliseconds{100};
      }
    }
  }
  template <class Progress>
  run_result run(Progress&& progress) {
    run_until(never, progress);
    return result();
  }
  /// Returns the result; the simulation cannot be used further.
  run_result result() {
    run_result out = recorder_.result();
    if (!workload_.reality.is_ideal()) out.drawn = std::move(drawn_);
    if constexpr (requires { core_.scheduler().changes(); }) {
      out.settings = core_.scheduler().changes();
    }
    return out;
  }
  run_result run() {
    return run([](time_point) {});
  }

  [[nodiscard]] auto& core() noexcept { return core_; }
  /// Counts since the last call, measured or not.
  [[nodiscard]] recent_events take_recent() noexcept {
    recent_events out = std::exchange(recent_, {});
    recent_.arrived.resize(out.arrived.size());
    return out;
  }
  /// Sets the number of devices in service. Call it before the first request or between instants.
  /// The last devices are released first, and finish their work. Only the workload's have faults.
  void set_devices(std::uint32_t count, time_point now) {
    clock_ = std::max(clock_, now);
    while (serving_.size() > count) {
      core_.remove_device(serving_.back(), now);
      serving_.pop_back();
    }
    while (serving_.size() < count) {
      serving_.push_back(core_.add_device(now));
      make_room(serving_.back().index() + 1);
    }
    std::ranges::sort(serving_);
    core_.advance(now, *this);
  }

  // The engine core's sink.
  void launch(const deferred::batch& b) noexcept {
    simulated_device& d = devices_[b.device.index()];
    const time_point start =
        std::max(clock_ + jitter_.draw(workload_.network.before(b.size())), d.free_at);
    const double factor = noise_.draw(b.model, start);
    const auto takes = static_cast<double>(b.work.count()) * factor * d.factor;
    const device_course::ending end = start == never
                                          ? device_course::ending{never}
                                          : d.course.end(start, duration{std::llround(takes)});
    recorder_.launched(b, clock_, start, end.at);
    if (end.at != never) recent_.busy += end.at - start;
    drawn_.drew(b.model, factor);
    drawn_.sent(b.device, end.failed, end.at == never);
    d.free_at = end.at;
    d.ends[d.sent++] = end;
    if (d.sent == 1) completions_.arm(b.device.index(), end.at);
  }
  void ended(request& r, outcome how) noexcept {
    requests_.give_back(r);
    recorder_.ended(r, how, clock_ + workload_.network.response);
    ++recent_.ended;
    recent_.bad += how != outcome::completed;
  }
  void model_removed(model_id) noexcept {}
  [[nodiscard]] static bool abandon(const deferred::batch& /*b*/) noexcept { return true; }
  /// Runs a batch of one of the model.
  void probe(device_id d, model_id with) noexcept {
    simulated_device& on = devices_[d.index()];
    const auto end = on.course.end(clock_, workload_.models[with.index()].latency_of(1));
    on.probe_fails = end.failed;
    probes_.arm(d.index(), end.at);
  }

 private:
  /// Makes room for device ids below `devices`: a released device keeps its id until its work ends.
  void make_room(std::size_t devices) {
    if (devices <= devices_.size()) return;
    devices_.resize(devices);
    completions_.resize(devices);
    probes_.resize(devices);
    drawn_.devices.resize(devices);
    recorder_.expect_devices(devices);
  }

  /// Whether the scheduler supports pools.
  static constexpr bool has_pools =
      requires(Scheduler& s) { s.add_device(time_point{}, deferred::pool_id{}); };

  void add_devices() {
    if constexpr (has_pools) {
      for (std::uint32_t p = 0; p < workload_.pools.size(); ++p) {
        for (std::uint32_t i = 0; i < workload_.pools[p].devices; ++i) {
          serving_.push_back(core_.add_device(time_point{}, deferred::pool_id{p}));
        }
      }
    }
    while (serving_.size() < workload_.devices) {
      serving_.push_back(core_.add_device(time_point{}));
    }
  }
  void add_models() {
    std::vector<std::uint32_t> pool_of(workload_.models.size(), 0);
    for (std::uint32_t p = 0; p < workload_.pools.size(); ++p) {
      for (const std::uint32_t m : workload_.pools[p].models) pool_of[m] = p;
    }
    const std::vector<std::uint32_t> capacities = queue_capacities();
    for (std::size_t i = 0; i < workload_.models.size(); ++i) {
      const model_spec& m = workload_.models[i];
      const engine::model_config config{
          .scheduling = {.latency = latency_curve{latency_of(m), effective_max_batch(m)},
                         .slo = m.slo,
                         .queue_capacity = capacities[i]},
          .is_repeatable = true};
      if constexpr (has_pools) {
        core_.add_model(config, deferred::pool_id{pool_of[i]});
      } else {
        core_.add_model(config);
      }
    }
  }

  static auto latency_of(const model_spec& m) {
    return [&m](std::uint32_t b) noexcept { return m.latency_of(b); };
  }

  /// By model: the configured capacity, or enough for all that can wait within the SLO, so that the
  /// queue is never full.
  std::vector<std::uint32_t> queue_capacities() const {
    const std::vector<model_spec>& models = workload_.models;
    std::vector<double> waiting(models.size(), 1);
    if (workload_.arrivals == arrival_process::trace) {
      for (const trace_row& row : workload_.trace) ++waiting[row.model];
    } else {
      const std::vector<double> part = workload_.normalised_shares();
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        const double expected = options_.rate * part[i] * to_seconds(workload_.models[i].slo);
        waiting[i] = 4 * expected + 4096;
      }
    }
    std::vector<std::uint32_t> capacities;
    capacities.reserve(waiting.size());
    for (std::size_t i = 0; i < models.size(); ++i) {
      const auto all = static_cast<std::uint32_t>(std::min(waiting[i], 1e8));
      capacities.push_back(models[i].queue_capacity > 0 ? models[i].queue_capacity : all);
    }
    return capacities;
  }

  void arrive(time_point now) noexcept {
    clock_ = now;
    request& r = requests_.take();
    r.model = model_id{arrivals_.take()};
    r.arrival = now;
    r.deadline = now + workload_.models[r.model.index()].slo;
    recorder_.arrived(r.model, now);
    ++recent_.arrived[r.model.index()];
    if (const std::optional<refusal> why = core_.submit(r, now, *this)) {
      ended(r, *why == refusal::overloaded ? outcome::refused : outcome::dropped);
    }
  }

  void finish(std::uint32_t device, time_point now) noexcept {
    clock_ = now;
    simulated_device& d = devices_[device];
    COHORT_ASSERT(d.sent > 0);
    const bool failed = d.ends[0].failed;
    d.ends[0] = d.ends[1];
    if (--d.sent > 0) completions_.arm(device, d.ends[0].at);
    core_.on_complete(device_id{device}, failed, now, *this);
  }

  /// When the driver really wakes for the next timer: late by chance, unless an event comes before.
  time_point next_wake() {
    const time_point due = core_.next_wake();
    if (workload_.reality.timers.is_none() || due == never) return due;
    if (due != due_) {
      const duration late = lateness_.draw();
      drawn_.woke(late);
      wake_ = std::max(due, clock_) + late;
      due_ = due;
    }
    return wake_;
  }

  struct simulated_device {
    device_course course;
    double factor = 1;                                                      // Factor of its class.
    std::array<device_course::ending, deferred::rank::entry_depth> ends{};  // Of its batches.
    std::uint32_t sent = 0;
    time_point free_at{};
    bool probe_fails = false;
  };

  request_pool requests_;  // First: outlives the batches that the core still links.
  const workload& workload_;
  run_options options_;
  engine::basic_engine_core<Scheduler> core_;
  arrival_stream arrivals_;
  timer_queue completions_;
  timer_queue probes_;  // By device: when its probe ends.
  std::vector<simulated_device> devices_;
  std::vector<device_id> serving_;  // By id.
  recent_events recent_;
  time_point report_{};
  noise_source noise_;
  lateness_source lateness_;
  jitter_source jitter_;
  reality_record drawn_;
  time_point due_ = distant_past;  // The timer for which `wake_` was drawn.
  time_point wake_{};
  recorder recorder_;
  time_point clock_{};
};

}  // namespace cohort::sim
