// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a gateway sends requests: `picked`, cohort's picker, and `routed`, which sends each
/// request on at once.
#pragma once

#include <cohort/cluster/picker.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/sim/cluster/cluster_simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::sim {

/// A model as engines are told of it. @param waiting Requests that may wait; at least 1.
[[nodiscard]] inline engine::model_config engine_model(const model_spec& m, std::uint32_t waiting) {
  return {.scheduling = {
              .latency = latency_curve{[&m](std::uint32_t b) noexcept { return m.latency_of(b); },
                                       effective_max_batch(m)},
              .slo = m.slo,
              .queue_capacity = m.queue_capacity > 0 ? m.queue_capacity : waiting}};
}

/// The picker, which leads all the time. Endpoints report once a second that they live. A value
/// that does not move.
template <deferred::batch_scheduler Scheduler>
class picked {
 public:
  /// @param scheduler Told of the network's delays.
  picked(const workload& w, Scheduler scheduler)
      : state_{std::make_unique<state>(std::move(scheduler))} {
    for (const model_spec& m : w.models) state_->picker.add_model(engine_model(m, 1U << 17U));
    for (std::uint32_t i = 0; i < w.devices; ++i) state_->picker.add_endpoint(1);
    state_->at_work.resize(w.devices);
    state_->picker.on_grant(1, never, time_point{}, *state_);
    report(time_point{});
  }

  template <class Cluster>
  void on_arrival(request& r, Cluster& at) {
    state& s = *state_;
    r.id = request_id{++s.opened};
    s.open.emplace(s.opened, &r);
    s.picker.on_stream(r.id, r.model, r.arrival, at.now(), s);
    carry_out(at);
  }
  template <class Cluster>
  void on_complete(std::uint32_t e, Cluster& at) {
    state& s = *state_;
    const std::vector<request_id> done = std::move(s.at_work[e].front());
    s.at_work[e].pop_front();
    for (const request_id id : done) s.picker.on_finished(id, false, at.now(), s);
    carry_out(at);
  }
  template <class Cluster>
  void advance(Cluster& at) {
    if (next_report_ <= at.now()) report(at.now());
    state_->picker.advance(at.now(), *state_);
    carry_out(at);
  }
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(next_report_, state_->picker.next_wake());
  }
  [[nodiscard]] const cluster::picker_counts& counts() const noexcept {
    return state_->picker.counts();
  }

 private:
  /// The picker, and its sink, which keeps what is to be done.
  struct state {
    explicit state(Scheduler scheduler)
        : picker{{.sends_ahead = true, .health = {.is_on = false}}, std::move(scheduler)} {}

    void answer(const cluster::picker_answer& a) noexcept {
      if (a.kind == cluster::answer_kind::pick) picks.push_back(a);
    }
    void over(request_id id, outcome how) noexcept { ends.emplace_back(id, how); }

    cluster::basic_picker<Scheduler> picker;
    std::uint64_t opened = 0;
    std::unordered_map<std::uint64_t, request*> open;
    std::vector<std::deque<std::vector<request_id>>> at_work;  // Batches, by endpoint.
    std::vector<cluster::picker_answer> picks;
    std::vector<std::pair<request_id, outcome>> ends;
  };

  void report(time_point now) {
    ++reports_;
    for (std::uint32_t i = 0; i < state_->at_work.size(); ++i) {
      state_->picker.on_report(cluster::endpoint_id{i}, {.sequence = reports_}, now, *state_);
    }
    next_report_ = now + std::chrono::seconds{1};
  }
  /// Answers of a batch follow one another.
  template <class Cluster>
  void carry_out(Cluster& at) {
    state& s = *state_;
    for (std::size_t i = 0; i < s.picks.size();) {
      const cluster::picker_answer first = s.picks[i];
      deferred::batch b{};
      std::vector<request_id>& ids = s.at_work[first.endpoint.index()].emplace_back();
      for (std::uint32_t n = 0; n < first.size; ++n, ++i) {
        ids.push_back(s.picks[i].stream);
        b.requests.push_back(*s.open.at(ids.back().value()));
      }
      b.model = b.requests.front().model;
      at.run(first.endpoint.value(), b);
      b.requests.clear();
    }
    s.picks.clear();
    for (const auto& [id, how] : s.ends) {
      const auto found = s.open.find(id.value());
      request& r = *found->second;
      s.open.erase(found);
      at.end(r, how);
    }
    s.ends.clear();
  }

  std::unique_ptr<state> state_;
  std::uint64_t reports_ = 0;
  time_point next_report_{};
};

/// What a gateway knows when it chooses an endpoint.
struct routing_view {
  const std::vector<std::uint32_t>& in_flight;  ///< Requests, by endpoint.
  std::uint32_t model;
};

/// Chooses with equal chances.
class random_endpoint {
 public:
  random_endpoint(const workload&, std::uint64_t seed) : random_{seed} {}
  [[nodiscard]] std::uint32_t choose(const routing_view& v) {
    return static_cast<std::uint32_t>(random_() % v.in_flight.size());
  }

 private:
  std::mt19937_64 random_;
};
/// In turn, for each model.
class round_robin {
 public:
  round_robin(const workload& w, std::uint64_t) : next_(w.models.size()) {}
  [[nodiscard]] std::uint32_t choose(const routing_view& v) {
    const auto n = static_cast<std::uint32_t>(v.in_flight.size());
    return next_[v.model]++ % n;
  }

 private:
  std::vector<std::uint32_t> next_;
};
/// The endpoint with the fewest requests of all; of equal ones, the first behind the last choice.
class least_request {
 public:
  least_request(const workload&, std::uint64_t) {}
  [[nodiscard]] std::uint32_t choose(const routing_view& v) {
    const std::size_t n = v.in_flight.size();
    std::size_t best = (last_ + 1) % n;
    for (std::size_t i = 2; i <= n; ++i) {
      const std::size_t e = (last_ + i) % n;
      if (v.in_flight[e] < v.in_flight[best]) best = e;
    }
    last_ = best;
    return static_cast<std::uint32_t>(best);
  }

 private:
  std::size_t last_ = 0;
};
/// The one with fewer requests of two that chance names: Envoy's least request, as it is by
/// default.
class two_choices {
 public:
  two_choices(const workload&, std::uint64_t seed) : random_{seed} {}
  [[nodiscard]] std::uint32_t choose(const routing_view& v) {
    const std::size_t a = random_() % v.in_flight.size();
    const std::size_t b = random_() % v.in_flight.size();
    return static_cast<std::uint32_t>(v.in_flight[b] < v.in_flight[a] ? b : a);
  }

 private:
  std::mt19937_64 random_;
};

/// Sends each request to an endpoint as it comes. Each endpoint is an engine of its own with one
/// device.
/// @tparam Choice `choose(const routing_view&)`.
template <class Choice, deferred::batch_scheduler Scheduler>
class routed {
 public:
  /// @param make `make(const network_delays&)` is the scheduler of an endpoint.
  template <class Make>
  routed(const workload& w, Choice choice, const Make& make)
      : choice_{std::move(choice)}, in_flight_(w.devices) {
    deferred::network_delays delays = w.told_delays();
    delays.control = duration{0};  // A scheduler at its device.
    for (std::uint32_t i = 0; i < w.devices; ++i) {
      endpoints_.push_back(std::make_unique<core_type>(make(delays)));
      endpoints_.back()->send_ahead(true);
      for (const model_spec& m : w.models) endpoints_.back()->add_model(engine_model(m, 16384));
      endpoints_.back()->add_device(time_point{});
      wakes_.resize(i + 1);
      refresh(i);
    }
  }

  template <class Cluster>
  void on_arrival(request& r, Cluster& at) {
    const std::uint32_t e = choice_.choose({in_flight_, r.model.value()});
    ++in_flight_[e];
    sink<Cluster> s{*this, e, at};
    if (const auto why = endpoints_[e]->submit(r, at.now(), s)) s.ended(r, outcome_of(*why));
    touched_.push_back(e);
  }
  template <class Cluster>
  void on_complete(std::uint32_t e, Cluster& at) {
    sink<Cluster> s{*this, e, at};
    endpoints_[e]->on_complete(device_id{0}, false, at.now(), s);
    touched_.push_back(e);
  }
  template <class Cluster>
  void advance(Cluster& at) {
    for (std::uint32_t e; (e = wakes_.pop_due(at.now())) != timer_queue::none;) {
      touched_.push_back(e);
    }
    for (const std::uint32_t e : touched_) {
      sink<Cluster> s{*this, e, at};
      endpoints_[e]->advance(at.now(), s);
      refresh(e);
    }
    touched_.clear();
  }
  [[nodiscard]] time_point next_wake() const noexcept { return wakes_.next(); }

 private:
  using core_type = engine::basic_engine_core<Scheduler>;

  template <class Cluster>
  struct sink {
    routed& self;
    std::uint32_t endpoint;
    Cluster& at;

    void launch(const deferred::batch& b) noexcept { at.run(endpoint, b); }
    void ended(request& r, outcome how) noexcept {
      --self.in_flight_[endpoint];
      at.end(r, how);
    }
    void model_removed(model_id) noexcept {}
  };

  void refresh(std::uint32_t e) noexcept { wakes_.arm(e, endpoints_[e]->next_wake()); }

  Choice choice_;
  std::vector<std::uint32_t> in_flight_;
  std::vector<std::unique_ptr<core_type>> endpoints_;
  timer_queue wakes_;
  std::vector<std::uint32_t> touched_;
};

}  // namespace cohort::sim
