// SPDX-License-Identifier: Apache-2.0
/// @file
/// What holds of every scheduler, whatever its policies and however its parts are joined.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/view.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <support/owned_requests.hpp>
#include <support/random_source.hpp>

namespace cohort::test {

/// Drives a scheduler in virtual time with devices that take as long as expected. Its requests are
/// gone as soon as they end; what became of them is known by their id.
template <class Scheduler>
struct driver {
  explicit driver(Scheduler s) : scheduler{std::move(s)} {}
  ~driver() {
    for (auto& [d, batches] : running) {
      for (deferred::batch& b : batches) b.requests.clear();
    }
  }

  /// A request with an id of its own, counted from 1.
  request& add() {
    request& r = requests.add();
    r.id = request_id{++made};
    return r;
  }
  void dispatch(deferred::batch&& b) noexcept {
    for (const request& r : b.requests) {
      order.push_back(r.sequence);
      note(r, 'r');
      late |= now + delays.before(b.size()) + b.expected + delays.after() > r.deadline;
    }
    sent.emplace_back(now, b.device.value(), b.size(), b.first_sequence);
    running[b.device.value()].push_back(std::move(b));
    crowded |= running[b.device.value()].size() > deferred::rank::entry_depth;
  }
  void drop(request& r) noexcept {
    note(r, 'd');
    dropped.push_back(r.sequence);
    idle &= r.state == request_state::idle;
    requests.end(r);
  }
  void cancel(request& r) {
    note(r, 'c');
    REQUIRE(scheduler.on_cancel(r, now, *this));
    idle &= r.state == request_state::idle;
    requests.end(r);
  }
  void finish_first(std::uint32_t device) {
    request_list& ended = running[device].front().requests;
    while (!ended.empty()) {
      request& r = ended.front();
      ended.pop_front();
      requests.end(r);
    }
    running[device].erase(running[device].begin());
    scheduler.on_complete(device_id{device}, now);
  }
  /// The next completion by expectation, or `never`.
  [[nodiscard]] std::pair<time_point, std::uint32_t> next_end() const {
    std::pair<time_point, std::uint32_t> next{never, 0};
    for (const auto& [d, batches] : running) {
      if (!batches.empty()) {
        next = std::min(next, {batches.front().exec_at + batches.front().expected, d});
      }
    }
    return next;
  }
  void run_until(time_point until) {
    for (;;) {
      const auto [end, device] = next_end();
      const time_point next = std::min(end, scheduler.next_wake());
      if (next > until) break;
      now = std::max(now, next);
      if (end <= now) finish_first(device);
      if (next_end().first > now) scheduler.advance(now, *this);
    }
    now = until;
  }

  void note(const request& r, char how) { twice |= !fate.emplace(r.id.value(), how).second; }

  owned_requests<> requests;  // Outlive the lists that they are in.
  std::uint64_t made = 0;
  Scheduler scheduler;
  deferred::network_delays delays{};
  time_point now = time_point{};
  std::map<std::uint32_t, std::vector<deferred::batch>> running;
  std::vector<std::tuple<time_point, std::uint32_t, std::uint32_t, std::uint64_t>> sent;
  std::vector<std::uint64_t> order;
  std::vector<std::uint64_t> dropped;
  std::map<std::uint64_t, char> fate;  // By id: ran, dropped or cancelled.
  bool twice = false;
  bool idle = true;  // Those that were dropped or cancelled were.
  bool late = false;
  bool crowded = false;
};

/// Random arrivals with varied deadlines, cancellations, batches that end early or late, devices
/// that come and go: what must hold holds for every policy.
template <class Scheduler>
void check_random_operations(deferred::network_delays delays) {
  using namespace std::chrono_literals;
  constexpr time_point t0{};
  const auto config = [](random_source& random) {
    return deferred::model_config{
        .latency = latency_curve{linear_latency{1ms * (1 + random.below(5)),
                                                100us * (1 + random.below(10))},
                                 1 + random.below(8U)},
        .slo = 30ms,
        .queue_capacity = 64};
  };
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    random_source random{seed};
    driver<Scheduler> d{Scheduler{delays}};
    d.delays = delays;
    const std::uint32_t models = 1 + random.below(3U);
    for (std::uint32_t i = 0; i < models; ++i) {
      d.scheduler.add_model(config(random));
    }
    std::set<std::uint32_t> present;
    for (int i = 0; i < 3; ++i) present.insert(d.scheduler.add_device(t0).value());
    std::size_t accepted = 0;
    for (int step = 0; step < 800; ++step) {
      d.now += 1us * random.below(2000);
      switch (random.below(8)) {
        case 0:
          if (const auto& all = d.requests.live(); !all.empty()) {
            request& r = *all[random.below(all.size())];
            if (r.state == request_state::queued) {
              d.cancel(r);
            } else {
              REQUIRE_FALSE(d.scheduler.on_cancel(r, d.now, d));
            }
          }
          break;
        case 1:
        case 2: {
          std::vector<std::uint32_t> busy;
          for (const auto& [dev, batches] : d.running) {
            if (!batches.empty()) busy.push_back(dev);
          }
          if (!busy.empty()) d.finish_first(busy[random.below(busy.size())]);
          break;
        }
        case 3:
          if constexpr (requires { d.scheduler.move_model(model_id{0}, random); }) {
            if (random.one_in(2)) d.scheduler.move_model(model_id{random.below(models)}, random);
          }
          if (random.one_in(20)) {  // Another model takes its place.
            const model_id gone{random.below(models)};
            d.scheduler.remove_model(gone, d.now, d);
            REQUIRE(d.scheduler.add_model(config(random)) == gone);
          } else if (random.one_in(20) && present.size() > 1) {
            d.scheduler.remove_device(device_id{*present.begin()}, d.now);
            present.erase(present.begin());
          } else if (random.one_in(20) && present.size() < 5) {
            const std::uint32_t id = d.scheduler.add_device(d.now).value();
            REQUIRE(present.insert(id).second);
            REQUIRE(d.running[id].empty());
          }
          break;
        default: {
          request& r = d.add();
          r.model = model_id{random.below(models)};
          r.arrival = d.now;
          // One in eight may be late whatever is done: it is dropped as it arrives, or others are.
          r.deadline = d.now + (random.one_in(8) ? 0ms : 12ms) + 1ms * random.below(30);
          if (!d.scheduler.models().is_full(r.model)) {
            ++accepted;
            d.scheduler.on_arrival(r, d.now, d);
          } else {
            d.requests.end(r);
          }
        }
      }
      d.scheduler.advance(d.now, d);
      REQUIRE(d.scheduler.next_wake() > d.now);  // Nothing is left to do now.
      REQUIRE_FALSE(d.twice);
      REQUIRE(d.idle);
      REQUIRE_FALSE(d.late);
      REQUIRE_FALSE(d.crowded);
    }
    for (int i = 0; i < 2000 && d.scheduler.next_wake() != never; ++i) {
      const auto [end, device] = d.next_end();
      d.now = std::max(d.now, std::min(end, d.scheduler.next_wake()));
      if (end <= d.now) d.finish_first(device);
      d.scheduler.advance(d.now, d);
    }
    for (auto& [device, batches] : d.running) {
      while (!batches.empty()) d.finish_first(device);
    }
    REQUIRE(d.requests.live().empty());
    REQUIRE(d.fate.size() == accepted);
  }
}

}  // namespace cohort::test
