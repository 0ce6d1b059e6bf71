// SPDX-License-Identifier: Apache-2.0
/// @file
/// Other systems' schedulers in virtual time, on the same workloads as ours.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/device_course.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/noise_source.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/sim/arrivals.hpp>
#include <cohort/sim/network_jitter.hpp>
#include <cohort/sim/recorder.hpp>
#include <cohort/sim/request_pool.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace cohort::sim {

/// A model's description for a rival.
struct rival_model {
  latency_curve run;   ///< ℓ(b).
  latency_curve sent;  ///< ℓ(b) plus the delay from the decision to the start.
  duration slo;        ///< Less the delay of the result.
  double rate = 0;     ///< Mean offered requests per second over the run.
};

/// Facts given to a rival before the run.
struct rival_facts {
  std::vector<rival_model> models;
  std::uint32_t devices = 1;
  duration after{0};  ///< From the end on the device until the deadline is judged.
};

namespace requirement {
/// Stands for a rival's orders in concept checks. Never defined.
struct any_rival_orders {
  [[nodiscard]] time_point now() const noexcept;
  [[nodiscard]] time_point free_at(device_id d) const noexcept;
  void run(device_id d, model_id m, request_list&& requests);
  request_list preempt(device_id d);
  void drop(request& r);
};

}  // namespace requirement

/// A scheduler only for simulation: another system's rules, for comparison. It is constructed from
/// `rival_facts`, and notified of arrivals and of devices that have become idle; after all events
/// of an instant, and at `next_wake()`, it decides. Orders:
/// * `run(device, model, requests)`: behind the device's present work. At least one request.
/// * `preempt(device)`: its only batch stops at once, its work is lost, and the requests are
///   returned.
/// * `drop(request)`: drops the request.
/// * `now()`, and `free_at(device)`: when the device's work ends by its profile; in the past if it
///   has none. A value; deterministic. Models: `clockwork`, `shepherd`, `nexus`.
template <class R>
concept rival = std::move_constructible<R> &&
                requires(R& r, request& q, requirement::any_rival_orders& o, device_id d) {
                  r.on_arrival(q, o);
                  r.on_free(d, o);
                  r.decide(o);
                } && requires(const R& r) {
                  { r.next_wake() } -> std::same_as<time_point>;
                };

/// The facts for rivals on a workload. Delays are those known to policies.
[[nodiscard]] inline rival_facts facts_of(const workload& w, double rate) {
  const deferred::network_delays delays = w.told_delays();
  rival_facts f{.models = {}, .devices = w.devices, .after = delays.after()};
  const std::vector<double> part = w.normalised_shares();
  for (std::size_t i = 0; i < w.models.size(); ++i) {
    const model_spec& m = w.models[i];
    const latency_curve run{[&m](std::uint32_t b) noexcept { return m.latency_of(b); },
                            effective_max_batch(m)};
    f.models.push_back({.run = run,
                        .sent = run.plus(delays.control, delays.data_per_request),
                        .slo = m.slo - delays.after(),
                        .rate = part[i] * rate});
  }
  if (w.arrivals == arrival_process::trace) {
    for (rival_model& m : f.models) m.rate = 0;
    const duration lasts = w.warmup + w.measured;
    for (const trace_row& row : w.trace) {
      if (row.at < time_point{} + lasts) f.models[row.model].rate += 1 / to_seconds(lasts);
    }
  }
  return f;
}

/// Drives a rival through a workload, as `simulation` does the engine. Devices do not fail: these
/// systems have no rules for that. Timers are never late, and queues hold all waiting requests,
/// whatever the model's limit. Single use: construct, `run`.
template <rival Rival>
class rival_simulation {
 public:
  /// @param make Constructs the rival from `rival_facts`.
  template <class Make>
  rival_simulation(const workload& w, const Make& make, const run_options& options)
      : workload_{w},
        facts_{facts_of(w, options.rate)},
        rival_{make(facts_)},
        arrivals_{w, options.rate, options.seed},
        completions_{w.devices},
        noise_{w.reality.noise, options.seed, w.reality.models},
        jitter_{w.jitter, options.seed},
        recorder_{w, options.rate, options.record_dispatches},
        devices_(w.devices),
        sequences_(w.models.size()) {}

  template <class Progress>
  run_result run(Progress&& progress) {
    time_point report{};
    for (;;) {
      const time_point now = std::min({arrivals_.next(), completions_.next(), rival_.next_wake()});
      if (recorder_.is_over(now, requests_)) break;
      clock_ = now;
      while (arrivals_.next() == now) arrive();
      for (std::uint32_t d; (d = completions_.pop_due(now)) != timer_queue::none;) finish(d);
      rival_.decide(*this);
      if (now >= report) {
        progress(now);
        report = now + std::chrono::milliseconds{100};
      }
    }
    return recorder_.result();
  }

  // The rival's orders.
  [[nodiscard]] time_point now() const noexcept { return clock_; }
  [[nodiscard]] time_point free_at(device_id d) const noexcept {
    return devices_[d.index()].expected_end;
  }
  void run(device_id to, model_id m, request_list&& requests) {
    device& d = devices_[to.index()];
    const auto size = static_cast<std::uint32_t>(requests.size());
    const rival_model& told = facts_.models[m.index()];
    work& w = d.has.emplace_back();
    w.batch.model = m;
    w.batch.device = to;
    w.batch.requests = std::move(requests);
    w.batch.first_sequence = w.batch.requests.front().sequence;
    w.batch.work = w.batch.expected = told.run(size);
    w.batch.exec_at =
        std::max(clock_ + (told.sent(size) - told.run(size)), std::max(clock_, d.expected_end));
    time_point earliest = never;
    for (request& r : w.batch.requests) {
      r.state = request_state::running;
      earliest = std::min(earliest, r.deadline);
    }
    w.batch.latest = earliest - facts_.after - w.batch.expected;
    d.expected_end = w.batch.exec_at + w.batch.expected;
    w.ready_at = clock_ + jitter_.draw(workload_.network.before(size));
    if (d.has.size() == 1) start(d);
  }
  [[nodiscard]] request_list preempt(device_id from) {
    device& d = devices_[from.index()];
    COHORT_ASSERT(d.has.size() == 1);
    completions_.disarm(from.index());
    recorder_.preempted(from, clock_, d.has.front().start, d.has.front().end);
    request_list back = std::move(d.has.front().batch.requests);
    d.has.clear();
    d.expected_end = clock_;
    for (request& r : back) {
      r.state = request_state::queued;
      ++r.attempts;
    }
    return back;
  }
  void drop(request& r) { end(r, outcome::dropped); }

 private:
  struct work {
    deferred::batch batch{};
    time_point ready_at{};  // When its input is on the device.
    time_point start{};
    time_point end{};
  };
  struct device {
    std::deque<work> has;  // The first one is running.
    time_point expected_end = distant_past;
  };

  void start(device& d) {
    work& w = d.has.front();
    w.start = std::max(clock_, w.ready_at);
    const double factor = noise_.draw(w.batch.model, w.start);
    w.end = w.start + duration{std::llround(static_cast<double>(w.batch.work.count()) * factor)};
    recorder_.launched(w.batch, clock_, w.start, w.end);
    completions_.arm(w.batch.device.index(), w.end);
  }
  void arrive() {
    request& r = requests_.take();
    r.model = model_id{arrivals_.take()};
    r.arrival = clock_;
    r.deadline = clock_ + workload_.models[r.model.index()].slo;
    r.sequence = ++sequences_[r.model.index()];
    r.attempts = 0;
    r.state = request_state::queued;
    recorder_.arrived(r.model, clock_);
    rival_.on_arrival(r, *this);
  }
  void finish(std::uint32_t which) {
    device& d = devices_[which];
    COHORT_ASSERT(!d.has.empty());
    request_list done = std::move(d.has.front().batch.requests);
    d.has.pop_front();
    while (!done.empty()) {
      request& r = done.front();
      done.pop_front();
      const bool is_late = clock_ + workload_.network.response > r.deadline;
      end(r, is_late ? outcome::late : outcome::completed);
    }
    if (!d.has.empty()) {
      d.expected_end = clock_;
      for (const work& w : d.has) {
        d.expected_end = std::max(d.expected_end, w.ready_at) + w.batch.expected;
      }
      return start(d);
    }
    d.expected_end = clock_;
    rival_.on_free(device_id{which}, *this);
  }
  void end(request& r, outcome how) {
    r.state = request_state::idle;
    requests_.give_back(r);
    recorder_.ended(r, how, clock_ + workload_.network.response);
  }

  request_pool requests_;  // First: outlives the batches.
  const workload& workload_;
  rival_facts facts_;
  Rival rival_;
  arrival_stream arrivals_;
  timer_queue completions_;
  noise_source noise_;
  jitter_source jitter_;
  recorder recorder_;
  std::vector<device> devices_;
  std::vector<std::uint64_t> sequences_;
  time_point clock_{};
};

/// One run of a workload under the rival that `make(rival_facts)` returns.
template <class Make, class Progress>
run_result simulate_rival(const workload& w, const Make& make, const run_options& options,
                          Progress&& progress) {
  using rival_type = decltype(make(std::declval<const rival_facts&>()));
  return rival_simulation<rival_type>{w, make, options}.run(std::forward<Progress>(progress));
}

}  // namespace cohort::sim
