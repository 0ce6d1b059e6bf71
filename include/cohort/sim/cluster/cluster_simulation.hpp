// SPDX-License-Identifier: Apache-2.0
/// @file
/// Endpoints behind a gateway in virtual time: `cluster_simulation`, and the `gateway_router` that
/// says where requests go.
#pragma once

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

namespace requirement {
/// Stands for what a router gives orders to where only the form of a call is asked. Never defined.
struct any_cluster {
  [[nodiscard]] time_point now() const noexcept;
  void run(std::uint32_t endpoint, const deferred::batch& b);
  void end(request& r, outcome how);
};
}  // namespace requirement

/// Says where requests go. It is told of each request, and of the end of an endpoint's oldest batch
/// when that has reached the gateway; after all events of an instant, and at `next_wake()`, it
/// advances. Orders:
/// * `run(endpoint, batch)`: the endpoint runs the batch behind what it has;
/// * `end(request, outcome)`, once for each request.
/// Deterministic. Models: `picked`, `routed`.
template <class R>
concept gateway_router = requires(R& r, request& q, requirement::any_cluster& o, std::uint32_t e) {
  r.on_arrival(q, o);
  r.on_complete(e, o);
  r.advance(o);
} && requires(const R& r) {
  { r.next_wake() } -> std::same_as<time_point>;
};

/// Drives a router through a workload whose devices are endpoints: a batch arrives there after
/// `network.before(size)`, runs for as long as its profile and the workload's noise say, and is
/// heard of at the gateway after `network.response`, where deadlines are judged. Endpoints do not
/// fail. Deterministic. Single use: construct, `run`.
template <gateway_router Router>
class cluster_simulation {
 public:
  /// @param make `make(const workload&)` is the router.
  template <class Make>
  cluster_simulation(const workload& w, const Make& make, const run_options& options)
      : workload_{w},
        router_{make(w)},
        arrivals_{w, options.rate, options.seed},
        completions_{w.devices},
        noise_{w.reality.noise, options.seed, w.reality.models},
        jitter_{w.jitter, options.seed},
        recorder_{w, options.rate, options.record_dispatches},
        endpoints_(w.devices) {}

  /// @param progress Called now and then with the simulated time, for long runs.
  /// @throws lost_request If a measured request never ends.
  template <class Progress>
  run_result run(Progress&& progress) {
    time_point report{};
    for (;;) {
      const time_point next =
          std::min({arrivals_.next(), completions_.next(), router_.next_wake()});
      if (recorder_.is_over(next, requests_)) return recorder_.result();
      clock_ = std::max(clock_, next);
      while (arrivals_.next() <= clock_) arrive();
      for (std::uint32_t e; (e = completions_.pop_due(clock_)) != timer_queue::none;) finish(e);
      router_.advance(*this);
      if (clock_ >= report) {
        progress(clock_);
        report = clock_ + std::chrono::milliseconds{100};
      }
    }
  }

  [[nodiscard]] Router& router() noexcept { return router_; }

  // Orders of the router.
  [[nodiscard]] time_point now() const noexcept { return clock_; }
  void run(std::uint32_t endpoint, const deferred::batch& b) {
    endpoint_state& e = endpoints_[endpoint];
    const time_point ready = clock_ + jitter_.draw(workload_.network.before(b.size()));
    const time_point start = std::max(ready, e.free_at);
    const duration runs = workload_.models[b.model.index()].latency_of(b.size());
    e.free_at = start + stretched(runs, noise_.draw(b.model, start));
    recorder_.launched(b, clock_, start, e.free_at, device_id{endpoint});
    e.heard_at.push_back(e.free_at + workload_.network.response);
    if (e.heard_at.size() == 1) completions_.arm(endpoint, e.heard_at.front());
  }
  void end(request& r, outcome how) {
    recorder_.ended(r, how, clock_);
    requests_.give_back(r);
  }

 private:
  struct endpoint_state {
    std::deque<time_point> heard_at;  // The ends of its batches.
    time_point free_at{};
  };

  void arrive() {
    request& r = requests_.take();
    r.model = model_id{arrivals_.take()};
    r.arrival = clock_;
    r.deadline = clock_ + workload_.models[r.model.index()].slo;
    r.attempts = 0;
    recorder_.arrived(r.model, clock_);
    router_.on_arrival(r, *this);
  }
  void finish(std::uint32_t endpoint) {
    endpoint_state& e = endpoints_[endpoint];
    e.heard_at.pop_front();
    if (!e.heard_at.empty()) completions_.arm(endpoint, e.heard_at.front());
    router_.on_complete(endpoint, *this);
  }

  request_pool requests_;  // First: outlives the batches.
  const workload& workload_;
  Router router_;
  arrival_stream arrivals_;
  timer_queue completions_;
  noise_source noise_;
  jitter_source jitter_;
  recorder recorder_;
  std::vector<endpoint_state> endpoints_;
  time_point clock_{};
};

/// One run of a workload under the router that `make(const workload&)` returns.
template <class Make, class Progress>
run_result simulate_cluster(const workload& w, const Make& make, const run_options& options,
                            Progress&& progress) {
  using router_type = decltype(make(w));
  return cluster_simulation<router_type>{w, make, options}.run(std::forward<Progress>(progress));
}

}  // namespace cohort::sim
