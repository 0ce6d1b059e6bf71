// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/pooled_scheduler.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>
#include <support/owned_requests.hpp>
#include <support/random_source.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::deferred::pooled_scheduler_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// Takes batches and drops, and says what there was. Names are the test's own, not the scheduler's.
struct log {
  ~log() {
    for (batch& b : running) b.requests.clear();
  }
  void dispatch(batch&& b) noexcept {
    lines.emplace_back(now, 'r', b.first_sequence, b.size(), b.expected);
    running.push_back(std::move(b));
  }
  void drop(request& r) noexcept {
    lines.emplace_back(now, 'd', r.sequence, 1U, duration{0});
    requests.end(r);
  }
  void finish(batch& b) {
    while (!b.requests.empty()) {
      request& r = b.requests.front();
      b.requests.pop_front();
      requests.end(r);
    }
  }
  cohort::test::owned_requests<> requests;  // Outlive the batches.
  time_point now = t0;
  std::vector<std::tuple<time_point, char, std::uint64_t, std::uint32_t, duration>> lines;
  std::vector<batch> running;
};

TEST_CASE("a model runs on the devices of its pool alone") {
  pooled_scheduler s;
  log out;
  request& r = out.requests.add();
  const latency_curve l{linear_latency{5ms, 1ms}, 4};
  const device_id d0 = s.add_device(t0, pool_id{0});
  const device_id d1 = s.add_device(t0, pool_id{1});
  const model_id m = s.add_model({.latency = l, .slo = 12ms}, pool_id{1});
  CHECK(d0 == device_id{0});
  CHECK(d1 == device_id{1});
  r.model = m;
  r.deadline = t0 + 12ms;
  s.on_arrival(r, t0, out);
  s.advance(t0, out);
  CHECK(s.next_wake() == t0 + 5ms);  // 12 − ℓ(2) = 12 − 7.
  s.advance(t0 + 5ms, out);
  REQUIRE(out.running.size() == 1);
  CHECK(out.running[0].device == d1);
  CHECK(s.devices(pool_id{0}).idle_devices() == 1);
  CHECK(s.devices(pool_id{1}).idle_devices() == 0);
}

TEST_CASE("without a device in its pool a model waits, and is dropped in the end") {
  pooled_scheduler s;
  log out;
  static_cast<void>(s.add_device(t0));
  const model_id m =
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 12ms}, pool_id{3});
  request& r = out.requests.add();
  r.model = m;
  r.deadline = t0 + 12ms;
  s.on_arrival(r, t0, out);
  for (time_point now = t0; now != never; now = s.next_wake()) {
    out.now = now;
    s.advance(now, out);
  }
  REQUIRE(out.lines.size() == 1);
  CHECK(std::get<1>(out.lines[0]) == 'd');
  CHECK(out.now == t0 + 6ms + 1ns);  // ℓ(1) = 6 ms before the deadline it is too late.
}

TEST_CASE("ids of models and devices are used again, in whatever pool") {
  pooled_scheduler s;
  log out;
  const latency_curve l{linear_latency{5ms, 1ms}, 4};
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(s.add_device(t0, pool_id{i}) == device_id{i});
    CHECK(s.add_model({.latency = l, .slo = 12ms}, pool_id{i}) == model_id{i});
  }
  s.remove_device(device_id{1}, t0);
  s.remove_model(model_id{1}, t0, out);
  CHECK(s.add_device(t0, pool_id{2}) == device_id{1});
  CHECK(s.add_model({.latency = l, .slo = 12ms}, pool_id{0}) == model_id{1});
  CHECK(s.devices(pool_id{2}).devices() == 2);
  CHECK(s.devices(pool_id{1}).devices() == 0);
  CHECK_THROWS_AS(s.add_model({.latency = l, .slo = 1ms}, pool_id{1}), config_error);
  CHECK(s.add_model({.latency = l, .slo = 12ms}, pool_id{1}) == model_id{3});
}

TEST_CASE("a device out of service keeps its id, and its pool is served by the others") {
  pooled_scheduler s;
  for (int i = 0; i < 2; ++i) s.add_device(t0, pool_id{1});
  s.set_in_service(device_id{0}, false, t0);
  CHECK(s.devices(pool_id{1}).entries() == 1);
  CHECK(s.add_device(t0, pool_id{0}) == device_id{2});
  s.set_in_service(device_id{0}, true, t0);
  CHECK(s.devices(pool_id{1}).entries() == 2);
}

/// One pool's scheduler under the same events as that pool of the other.
struct twin {
  scheduler alone;
  log out;
  std::vector<std::pair<model_id, model_id>> models;     // Pooled, alone.
  std::vector<std::pair<device_id, device_id>> devices;  // Pooled, alone.
};

TEST_CASE("each pool decides what a scheduler of its own would") {
  std::size_t batches = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::uint32_t pools = 1 + random.below(4U);
    pooled_scheduler joint;
    log out;
    std::deque<twin> twins(pools);
    time_point now = t0;
    for (std::uint32_t p = 0; p < pools; ++p) {
      for (std::uint32_t i = 1 + random.below(3U); i-- > 0;) {
        const device_id a = joint.add_device(now, pool_id{p});
        twins[p].devices.emplace_back(a, twins[p].alone.add_device(now));
      }
      for (std::uint32_t i = 1 + random.below(3U); i-- > 0;) {
        const model_config c{
            .latency = latency_curve{linear_latency{(1 + random.below(4U)) * 1ms,
                                                    (1 + random.below(900U)) * 1us},
                                     8},
            .slo = (8 + random.below(20U)) * 1ms};
        const model_id a = joint.add_model(c, pool_id{p});
        twins[p].models.emplace_back(a, twins[p].alone.add_model(c));
      }
    }
    for (int n = 0; n < 300; ++n) {
      // Advance both to the next event.
      const time_point to = now + random.below(2000U) * 1us;
      for (;;) {
        time_point next = joint.next_wake();
        for (const batch& b : out.running) next = std::min(next, b.exec_at + b.expected);
        time_point other = never;
        for (const twin& t : twins) {
          other = std::min(other, t.alone.next_wake());
          for (const batch& b : t.out.running) other = std::min(other, b.exec_at + b.expected);
        }
        REQUIRE(std::max(next, now) == std::max(other, now));
        if (next > to) break;
        now = std::max(now, next);
        out.now = now;
        const auto finish = [&](log& l, auto& s) {
          for (std::size_t i = 0; i < l.running.size();) {
            batch& b = l.running[i];
            if (b.exec_at + b.expected > now) {
              ++i;
              continue;
            }
            l.finish(b);
            const device_id d = b.device;
            l.running.erase(l.running.begin() + static_cast<std::ptrdiff_t>(i));
            s.on_complete(d, now);
          }
        };
        finish(out, joint);
        joint.advance(now, out);
        for (twin& t : twins) {
          t.out.now = now;
          finish(t.out, t.alone);
          t.alone.advance(now, t.out);
        }
      }
      now = to;
      const std::uint32_t p = random.below(pools);
      twin& t = twins[p];
      const auto [a, b] = t.models[random.below(t.models.size())];
      out.now = t.out.now = now;
      const duration slo = (8 + random.below(20U)) * 1ms;
      const auto arrive = [&](auto& s, model_id id, log& l) {
        request& r = l.requests.add();
        r.model = id;
        r.arrival = now;
        r.deadline = now + slo;
        s.on_arrival(r, now, l);
        s.advance(now, l);
      };
      arrive(joint, a, out);
      arrive(t.alone, b, t.out);
    }
    // The same batches and drops, whatever the order within an instant.
    auto theirs = decltype(out.lines){};
    for (const twin& t : twins) {
      theirs.insert(theirs.end(), t.out.lines.begin(), t.out.lines.end());
    }
    std::ranges::sort(theirs);
    std::ranges::sort(out.lines);
    CHECK(out.lines == theirs);
    batches += out.lines.size();
    // And each in its pool.
    for (const batch& b : out.running) {
      const auto owner = std::ranges::find_if(twins, [&](const twin& t) {
        return std::ranges::any_of(t.models, [&](auto x) { return x.first == b.model; });
      });
      REQUIRE(std::ranges::any_of(owner->devices, [&](auto x) { return x.first == b.device; }));
    }
  }
  CHECK(batches > 10'000);
}
}  // namespace
}  // namespace cohort::deferred::pooled_scheduler_test
