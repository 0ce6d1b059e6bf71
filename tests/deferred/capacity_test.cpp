// SPDX-License-Identifier: Apache-2.0
// Devices that run several batches at one time, against what must hold for any of them.
#include <doctest/doctest.h>
#include <cohort/deferred/scheduler.hpp>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <support/dispatch_log.hpp>
#include <support/owned_requests.hpp>
#include <support/random_source.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::deferred::capacity_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
using eager_head = basic_scheduler<eager, head>;
using log = test::dispatch_log;

TEST_CASE("a batch counts as often as the device's capacity, and is sent that much earlier") {
  request r;
  log out;
  scheduler s;
  s.add_device(t0, 2);
  const model_id m =
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 30ms});
  CHECK(s.models().least_time(m) == 12ms);  // 2 ℓ(1).
  r.deadline = t0 + 30ms;
  s.on_arrival(r, t0, out);
  s.advance(t0, out);
  CHECK(s.next_wake() == t0 + 16ms);  // 30 − 2 ℓ(2) = 30 − 14.
  s.advance(t0 + 16ms, out);
  REQUIRE(out.running.size() == 1);
  CHECK(out.running[0].expected == 12ms);
  CHECK(out.running[0].work == 6ms);
  CHECK(out.running[0].latest == t0 + 18ms);
}
TEST_CASE("a model whose SLO does not allow for sharing is an error, whichever comes first") {
  const model_config c{.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 17ms};
  scheduler first;
  first.add_device(t0, 3);
  CHECK_THROWS_AS(first.add_model(c), config_error);
  scheduler second;
  const model_id m = second.add_model(c);
  CHECK_THROWS_AS(second.add_device(t0, 3), config_error);
  CHECK_THROWS_AS(second.add_device(t0, 0), config_error);
  CHECK(second.devices().devices() == 0);
  CHECK(second.models().least_time(m) == 6ms);
  CHECK(second.add_device(t0, 2) == device_id{0});
  CHECK(second.models().least_time(m) == 12ms);
  second.remove_device(device_id{0}, t0);
  CHECK(second.add_device(t0) == device_id{0});  // None of two is left.
  CHECK(second.models().least_time(m) == 6ms);
}
TEST_CASE("capacity counts for the models of its pool alone") {
  const model_config c{.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 17ms};
  pooled_scheduler s;
  const model_id a = s.add_model(c, pool_id{0});
  const model_id b = s.add_model(c, pool_id{1});
  const device_id d = s.add_device(t0, pool_id{1}, 2);
  CHECK(s.capacity(d) == 2);
  CHECK(s.models().least_time(a) == 6ms);
  CHECK(s.models().least_time(b) == 12ms);
  CHECK_THROWS_AS(s.add_device(t0, pool_id{0}, 3), config_error);
}
TEST_CASE("a candidate that waits when devices come to be shared is sent as early as it must") {
  request r;
  log out;
  scheduler s;
  s.add_device(t0);
  s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 30ms});
  r.deadline = t0 + 30ms;
  s.on_arrival(r, t0, out);
  s.advance(t0, out);
  CHECK(s.next_wake() == t0 + 23ms);  // 30 − ℓ(2).
  s.add_device(t0, 2);
  s.advance(t0, out);
  CHECK(s.next_wake() == t0 + 16ms);
}

/// A scheduler over devices on which the batches at work progress evenly, so that k of them take k
/// times as long. Those sent ahead start when one of their entry ends.
template <class Scheduler>
struct shared_devices {
  struct piece {
    batch what;
    double left;  // Nanoseconds alone.
    time_point sent;
  };
  explicit shared_devices(network_delays d) : scheduler{d}, delays{d} {}
  ~shared_devices() {
    for (auto& [at, pieces] : entries) {
      for (piece& p : pieces) p.what.requests.clear();
    }
  }

  void dispatch(batch&& b) noexcept {
    for (const request& r : b.requests) ++ends[r.id.value()];
    const std::pair at{b.device.value(), b.entry};
    is_sound = is_sound && b.entry < scheduler.capacity(b.device) &&
               entries[at].size() < rank::entry_depth;
    entries[at].push_back({std::move(b), 0, now});
    entries[at].back().left = static_cast<double>(entries[at].back().what.work.count());
  }
  void drop(request& r) noexcept {
    ++ends[r.id.value()];
    requests.end(r);
  }

  [[nodiscard]] std::size_t at_work(std::uint32_t device) const {
    return static_cast<std::size_t>(std::ranges::count_if(entries, [&](const auto& e) {
      return e.first.first == device && !e.second.empty() && e.second.front().what.exec_at <= now;
    }));
  }
  /// Lets time pass to the next end, if there is one up to `until`.
  bool pass(time_point until) {
    double step = static_cast<double>((until - now).count());
    auto ending = entries.end();
    for (auto i = entries.begin(); i != entries.end(); ++i) {
      if (i->second.empty()) continue;
      const piece& p = i->second.front();
      const double start = static_cast<double>((p.what.exec_at - now).count());
      const double end = start > 0 ? start : p.left * static_cast<double>(at_work(i->first.first));
      if (end > step) continue;
      step = end;
      ending = start > 0 ? entries.end() : i;
    }
    std::vector<std::pair<piece*, double>> progress;
    for (auto& [at, pieces] : entries) {
      if (pieces.empty() || pieces.front().what.exec_at > now) continue;
      progress.emplace_back(&pieces.front(), step / static_cast<double>(at_work(at.first)));
    }
    for (auto& [p, done] : progress) p->left -= done;
    const time_point to = now + duration{std::llround(step)};
    const bool goes_on = to < until;
    now = to;
    if (ending != entries.end()) {
      piece& p = ending->second.front();
      while (!p.what.requests.empty()) {
        request& r = p.what.requests.front();
        lateness = std::max(lateness, now + delays.after() - r.deadline);
        p.what.requests.pop_front();
        requests.end(r);
      }
      const device_entry at = p.what.at();
      ending->second.erase(ending->second.begin());
      scheduler.on_complete(at, now);
      scheduler.advance(now, *this);
    }
    return goes_on;
  }

  test::owned_requests<> requests;  // Outlive the batches.
  Scheduler scheduler;
  network_delays delays;
  time_point now = t0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<piece>> entries;
  std::map<std::uint64_t, int> ends;  // By id.
  duration lateness{-1h};
  bool is_sound = true;
};

template <class Scheduler>
void check_random_loads(bool is_eager) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::uint64_t accepted = 0;
    shared_devices<Scheduler> d{network_delays{}};
    std::vector<std::uint32_t> capacities;
    for (std::uint32_t i = 1 + random.below(3U); i-- > 0;) {
      capacities.push_back(1 + random.below(3U));
      d.scheduler.add_device(t0, capacities.back());
    }
    const std::uint32_t models = 1 + random.below(3U);
    for (std::uint32_t i = 0; i < models; ++i) {
      d.scheduler.add_model(
          {.latency = latency_curve{linear_latency{1ms * (1 + random.below(4)),
                                                   100us * (1 + random.below(10))},
                                    1 + random.below(8U)},
           .slo = 40ms,
           .queue_capacity = 64});
    }
    for (int step = 0; step < 600; ++step) {
      const time_point to = d.now + 1us * random.below(3000);
      while (d.now < to) {
        const time_point wake = std::max(d.now, d.scheduler.next_wake());
        d.pass(std::min(to, wake));
        d.scheduler.advance(d.now, d);
        REQUIRE(d.scheduler.next_wake() > d.now);  // Nothing is left to do now.
      }
      for (std::uint32_t i = random.below(4U); i-- > 0;) {
        request& r = d.requests.add();
        r.id = request_id{accepted};
        r.model = model_id{random.below(models)};
        r.arrival = d.now;
        r.deadline = d.now + 15ms + 1ms * random.below(40);
        if (d.scheduler.models().is_full(r.model)) {
          d.requests.end(r);
        } else {
          ++accepted;
          d.scheduler.on_arrival(r, d.now, d);
        }
      }
      d.scheduler.advance(d.now, d);
      REQUIRE(d.is_sound);
      std::size_t idle = 0;
      for (std::uint32_t i = 0; i < capacities.size(); ++i) {
        REQUIRE(d.at_work(i) <= capacities[i]);
        idle += capacities[i] - d.at_work(i);
      }
      REQUIRE(idle == d.scheduler.devices().idle_entries());
      for (std::uint32_t m = 0; m < models && is_eager && idle > 0; ++m) {
        REQUIRE(d.scheduler.models().queued_requests(model_id{m}) == 0);
      }
    }
    while (d.scheduler.next_wake() != never || d.pass(d.now + 1s)) {
      d.pass(std::min(d.now + 1s, d.scheduler.next_wake()));
      d.scheduler.advance(d.now, d);
    }
    REQUIRE(d.requests.live().empty());
    for (std::uint64_t i = 0; i < accepted; ++i) REQUIRE(d.ends[i] == 1);
    REQUIRE(d.lateness <= 1us);  // What rounding to nanoseconds may add.
  }
}
TEST_CASE("however batches share their devices, none ends late and no entry idles: eager") {
  check_random_loads<eager_head>(true);
}
TEST_CASE("however batches share their devices, none ends late: deferred") {
  check_random_loads<scheduler>(false);
}
TEST_CASE("however batches share their devices, none ends late: adaptive") {
  check_random_loads<adaptive_scheduler>(false);
}

/// Decisions of a scheduler over devices that take as long as expected.
template <class Scheduler>
struct exact_devices {
  using line = std::tuple<time_point, char, std::uint64_t, std::size_t, duration>;
  ~exact_devices() {
    for (auto& [end, b] : running) b.requests.clear();
  }
  void dispatch(batch&& b) noexcept {
    lines.emplace_back(now, 'r', b.first_sequence, b.size(), b.expected);
    const time_point start = std::max(b.exec_at, free_at[{b.device.value(), b.entry}]);
    free_at[{b.device.value(), b.entry}] = start + b.expected;
    running.emplace(start + b.expected, std::move(b));
  }
  void drop(request& r) noexcept { lines.emplace_back(now, 'd', r.sequence, 1U, duration{0}); }
  void run_until(time_point until) {
    for (;;) {
      const time_point end = running.empty() ? never : running.begin()->first;
      const time_point next = std::min(end, scheduler.next_wake());
      if (next > until) break;
      now = std::max(now, next);
      while (!running.empty() && running.begin()->first <= now) {
        batch& b = running.begin()->second;
        for (request& r : b.requests) r.state = request_state::idle;
        b.requests.clear();
        scheduler.on_complete(b.at(), now);
        running.erase(running.begin());
      }
      scheduler.advance(now, *this);
    }
    now = until;
  }

  Scheduler scheduler;
  time_point now = t0;
  std::deque<request> requests{};  // Outlive the batches.
  std::multimap<time_point, batch> running{};
  std::map<std::pair<std::uint32_t, std::uint32_t>, time_point> free_at{};
  std::vector<line> lines{};
};

template <class Scheduler>
void check_as_slower_devices(Scheduler (*make)(network_delays)) {
  std::size_t batches = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const network_delays delays =
        random.one_in(2)
            ? network_delays{}
            : network_delays{.control = 200us, .data_per_request = 50us, .wake_margin = 100us};
    const std::uint32_t capacity = 2 + random.below(3U);
    exact_devices<Scheduler> few{.scheduler = make(delays)};
    exact_devices<Scheduler> many{.scheduler = make(delays)};
    constexpr std::uint32_t devices = 2;
    for (std::uint32_t i = 0; i < devices; ++i) few.scheduler.add_device(t0, capacity);
    for (std::uint32_t i = 0; i < devices * capacity; ++i) many.scheduler.add_device(t0);
    const std::uint32_t models = 1 + random.below(3U);
    for (std::uint32_t i = 0; i < models; ++i) {
      const latency_curve l{
          linear_latency{137us * (1 + random.below(20)), 10us * (1 + random.below(50))}, 8};
      few.scheduler.add_model({.latency = l, .slo = 60ms});
      many.scheduler.add_model({.latency = l.times(capacity), .slo = 60ms});
    }
    for (int step = 0; step < 1500; ++step) {
      const time_point to = few.now + 1us * random.below(1500);
      const model_id m{random.below(models)};
      const time_point deadline = to + 20ms + 1us * random.below(30'000);
      for (auto* d : {&few, &many}) {
        d->run_until(to);
        request& r = d->requests.emplace_back();
        r.model = m;
        r.arrival = to;
        r.deadline = deadline;
        d->scheduler.on_arrival(r, to, *d);
        d->scheduler.advance(to, *d);
      }
    }
    REQUIRE(few.lines == many.lines);
    batches += few.lines.size();
  }
  CHECK(batches > 10'000);
}
TEST_CASE("devices of capacity c decide what c times as many, each c times slower, do: deferred") {
  check_as_slower_devices<scheduler>([](network_delays d) { return scheduler{d}; });
}
TEST_CASE("devices of capacity c decide what c times as many, each c times slower, do: adaptive") {
  // Not learning: what a batch takes alone on its device is less here, as it is not there.
  check_as_slower_devices<adaptive_scheduler>(
      [](network_delays d) { return make_adaptive_scheduler(d, {}, learning{}); });
}
}  // namespace
}  // namespace cohort::deferred::capacity_test
