// SPDX-License-Identifier: Apache-2.0
// What requests that make any device hang or fail take from other requests: cores in virtual time.
#include <cohort/engine/engine_core.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::engine::poison_requests_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point at(duration since) { return time_point{} + since; }

enum class poison : std::uint8_t { none, hangs, fails };
struct job : request {
  poison kind = poison::none;
  std::uint32_t runs = 0;  // Batches that began with it.
  std::vector<outcome> ends{};
};

/// Devices and two models of l(b) = b + 5 ms, eager. A batch with a poison request fails, or hangs
/// until it is abandoned and a while after; a probe takes 1 ms and succeeds.
struct world {
  using core_type = basic_engine_core<deferred::basic_scheduler<deferred::eager, deferred::head>>;
  struct sent {
    const deferred::batch* b;
    batch_ticket at;
    time_point ends;
    bool failed;
    bool hangs;
  };

  explicit world(std::uint32_t devices, health_options health = {.floor = 50ms})
      : core{deferred::basic_scheduler<deferred::eager, deferred::head>{}, 0s, {}, health} {
    for (std::uint32_t i = 0; i < devices; ++i) lanes[core.add_device(now)];
    for (model_id* m : {&poisoned, &other}) *m = add_model();
  }
  model_id add_model() {
    return core.add_model({.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4},
                                          .slo = 1s,
                                          .queue_capacity = 64},
                           .is_repeatable = true});
  }

  // The core's sink.
  void launch(const deferred::batch& b) noexcept {
    std::deque<sent>& lane = lanes[b.device];
    lane.push_back({&b, b.at(), never, false, false});
    if (lane.size() == 1) begin(lane.front());
  }
  void ended(request& r, outcome how) noexcept { static_cast<job&>(r).ends.push_back(how); }
  void model_removed(model_id) noexcept {}
  bool abandon(const deferred::batch& b) noexcept {
    for (sent& s : lanes[b.device]) {
      if (s.at.number != b.number) continue;
      abandoned.insert(b.number);
      if (s.hangs) s.ends = now + lets_go_after;
    }
    return true;
  }
  void probe(device_id d, model_id) noexcept { probes.emplace_back(d, now + 1ms); }

  void begin(sent& s) noexcept {
    s.ends = now + 5ms + 1ms * s.b->size();
    for (const request& r : s.b->requests) {
      auto& j = const_cast<job&>(static_cast<const job&>(r));
      ++j.runs;
      s.failed |= j.kind == poison::fails;
      s.hangs |= j.kind == poison::hangs;
    }
    if (s.hangs) s.ends = never;
  }
  job& submit(model_id m, poison kind = poison::none) {
    job& j = jobs.emplace_back();
    j.kind = kind;
    j.model = m;
    j.arrival = now;
    j.deadline = now + 1s;
    refused = core.submit(j, now, *this);
    core.advance(now, *this);
    return j;
  }
  [[nodiscard]] time_point next() const {
    time_point t = core.next_wake();
    for (const auto& [d, lane] : lanes) {
      if (!lane.empty()) t = std::min(t, lane.front().ends);
    }
    for (const auto& [d, ends] : probes) t = std::min(t, ends);
    return t;
  }
  void run_until(time_point t) {
    for (time_point n = next(); n <= t; n = next()) {
      now = std::max(now, n);
      for (auto& [d, lane] : lanes) {
        if (lane.empty() || lane.front().ends > now) continue;
        const sent s = lane.front();
        lane.pop_front();
        if (!lane.empty()) begin(lane.front());
        core.on_complete(s.at, s.failed || abandoned.contains(s.at.number), now, *this);
      }
      if (!probes.empty() && probes.front().second <= now) {
        const device_id d = probes.front().first;
        probes.erase(probes.begin());
        core.on_probe(d, false, now, *this);
      }
      core.advance(now, *this);
      most_out = std::max(most_out, out());
    }
    now = t;
  }
  [[nodiscard]] std::size_t out() const {
    return static_cast<std::size_t>(std::ranges::count_if(lanes, [&](const auto& l) {
      return core.health().state(l.first) == device_state::quarantined;
    }));
  }

  time_point now{};
  duration lets_go_after = 1ms;
  std::map<device_id, std::deque<sent>> lanes;
  std::vector<std::pair<device_id, time_point>> probes;
  std::set<std::uint64_t> abandoned;
  std::deque<job> jobs;
  std::optional<refusal> refused;
  std::size_t most_out = 0;
  core_type core;
  model_id poisoned, other;
};

TEST_CASE("a request on which a device hangs ends once, on one device, which is back at once") {
  world w{2};
  const job& j = w.submit(w.poisoned, poison::hangs);
  w.run_until(at(272ms));  // 4 · (3 · 6 + 50).
  CHECK(j.ends == std::vector{outcome::failed});
  CHECK(w.out() == 1);
  // It lets go after 1 ms; a first probe waits for 100 ms.
  w.run_until(at(373ms));
  CHECK(w.out() == 0);
  w.run_until(at(10s));
  CHECK(j.runs == 1);
  CHECK(j.ends.size() == 1);
}

TEST_CASE("a request that fails on two devices is to blame, and neither device is out") {
  world w{2};
  for (int i = 0; i < 50; ++i) {
    w.submit(w.other);  // Has the other device free for the second try.
    const job& j = w.submit(w.poisoned, poison::fails);
    w.run_until(w.now + 20ms);
    CHECK(j.runs == 2);
    CHECK(j.ends == std::vector{outcome::failed});
    w.submit(w.other);
    w.submit(w.other);
    w.run_until(w.now + 20ms);
  }
  CHECK(w.most_out == 0);
}

TEST_CASE("the second device that a model's requests hang suspends the model, not the others") {
  world w{4};
  for (int i = 0; i < 20; ++i) {  // Most batches are the other's.
    w.submit(w.other);
    w.run_until(w.now + 20ms);
  }
  const time_point t = w.now;
  w.submit(w.poisoned, poison::hangs);
  w.run_until(t + 1ms);
  w.submit(w.poisoned, poison::hangs);
  w.run_until(t + 272ms);
  const job& before = w.submit(w.poisoned);
  CHECK_FALSE(w.refused);  // One device is one device.
  CHECK(before.ends.empty());
  w.run_until(t + 280ms);  // The second one was sent at 0 or 1 ms, and found out 272 ms later.
  CHECK(w.out() == 2);
  w.submit(w.poisoned);
  CHECK(w.refused == refusal::model_suspended);
  w.submit(w.other);
  CHECK_FALSE(w.refused);
  w.run_until(t + 273ms + 10s - 1ns);
  w.submit(w.poisoned);
  CHECK(w.refused == refusal::model_suspended);
  w.run_until(t + 273ms + 10s);
  const job& after = w.submit(w.poisoned);
  CHECK_FALSE(w.refused);
  w.run_until(t + 11s);
  CHECK(after.ends == std::vector{outcome::completed});
  CHECK(before.ends == std::vector{outcome::completed});
}

TEST_CASE("where there is one device, a model whose requests hang it twice is suspended") {
  world w{1};
  for (int i = 0; i < 20; ++i) {
    w.submit(w.other);
    w.run_until(w.now + 20ms);
  }
  for (int i = 0; i < 2; ++i) {
    w.submit(w.poisoned, poison::hangs);
    w.run_until(w.now + 1s);
    CHECK(w.out() == 0);
  }
  w.submit(w.poisoned);
  CHECK(w.refused == refusal::model_suspended);
  const job& j = w.submit(w.other);
  w.run_until(w.now + 20ms);
  CHECK(j.ends == std::vector{outcome::completed});
}

TEST_CASE("two models whose requests hang devices in turn are suspended both") {
  world w{5};
  w.lets_go_after = 5s;  // Each hangs another one.
  const model_id third = w.add_model();
  for (int i = 0; i < 40; ++i) {
    w.submit(w.other);
    w.run_until(w.now + 20ms);
  }
  for (const model_id m : {w.poisoned, third, w.poisoned, third}) {
    w.submit(m, poison::hangs);
    CHECK_FALSE(w.refused);
    w.run_until(w.now + 1s);
  }
  for (const model_id m : {w.poisoned, third}) {
    w.submit(m);
    CHECK(w.refused == refusal::model_suspended);
  }
  w.submit(w.other);
  CHECK_FALSE(w.refused);
  w.run_until(w.now + 1s);
}

TEST_CASE("a model that is alone is never suspended") {
  world w{3};
  REQUIRE(w.core.remove_model(w.other, w.now, w));
  for (int i = 0; i < 3; ++i) w.submit(w.poisoned, poison::hangs);
  w.run_until(at(280ms));
  w.submit(w.poisoned);
  CHECK_FALSE(w.refused);
  w.run_until(at(10s));
}

TEST_CASE("random poison: each request ends once, and other models lose none") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    world w{2 + random.below(3U)};
    w.lets_go_after = 1ms * random.below(50);
    const std::uint32_t rarity = 20 + random.below(300U);
    const bool hangs = random.one_in(2);
    for (int i = 0; i < 2000; ++i) {
      w.run_until(w.now + 1ms * (5 + random.below(10)));
      if (random.one_in(2)) {
        w.submit(w.other);
      } else {
        const bool is_poison = random.one_in(rarity);
        w.submit(w.poisoned, !is_poison ? poison::none : hangs ? poison::hangs : poison::fails);
      }
      if (w.refused) w.jobs.pop_back();
    }
    w.run_until(w.now + 5s);
    REQUIRE(w.core.in_flight() == 0);
    std::size_t lost = 0;
    for (const job& j : w.jobs) {
      REQUIRE(j.ends.size() == 1);
      if (j.kind != poison::none) {
        CHECK(j.ends.front() != outcome::completed);
        // The first device that fails it may get it again, until it is out.
        CHECK(j.runs <= (j.kind == poison::hangs ? 1U : 4U));
      }
      lost += j.model == w.other && j.ends.front() != outcome::completed;
    }
    CHECK(lost == 0);
    CHECK(w.out() == 0);
  }
}

}  // namespace
}  // namespace cohort::engine::poison_requests_test
