// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/batch_times.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <list>
#include <utility>

namespace cohort::deferred::batch_times_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr device_id d0{0};

/// Nothing is known of any model.
struct strangers {
  static usual_time usual(model_id, std::uint32_t) { return {}; }
};
/// All models take what their profiles say.
struct acquaintances {
  static usual_time usual(model_id, std::uint32_t) { return {.is_known = true, .spread = 0.05}; }
};

struct bench {
  explicit bench(std::uint32_t capacity = 1) { times.add_device(d0, capacity); }
  void send(duration work, time_point now, time_point exec_at, std::uint32_t entry = 0,
            device_id d = d0) {
    requests.emplace_back();
    batch b{.model = model_id{0},
            .device = d,
            .entry = entry,
            .requests = {},
            .first_sequence = 1,
            .exec_at = exec_at,
            .latest = exec_at,
            .expected = work,
            .work = work};
    b.requests.push_back(requests.back());
    times.on_dispatch(b.at(), b.event(), now);
    b.requests.clear();
  }
  double end(time_point now, std::uint32_t entry = 0, bool failed = false) {
    return ratio_of(times.on_complete({d0, entry}, now, failed, strangers{}));
  }
  static double ratio_of(const batch_time& t) { return t.is_known ? std::exp(t.log_ratio) : 0; }
  batch_times times;
  std::list<request> requests;
};

TEST_CASE("a batch takes from its start to its end") {
  bench b;
  b.send(10ms, t0, t0);
  CHECK(b.end(t0 + 12ms) == doctest::Approx(1.2));
  b.send(10ms, t0 + 20ms, t0 + 25ms);  // Sent ahead: it starts at 25.
  CHECK(b.end(t0 + 40ms) == doctest::Approx(1.5));
}

TEST_CASE("a batch behind another starts when that ends, or when it was sent for") {
  bench b;
  b.send(10ms, t0, t0);
  b.send(10ms, t0 + 8ms, t0 + 10ms);
  CHECK(b.end(t0 + 15ms) == doctest::Approx(1.5));
  CHECK(b.end(t0 + 25ms) == doctest::Approx(1));
  b.send(10ms, t0 + 30ms, t0 + 30ms);
  b.send(10ms, t0 + 31ms, t0 + 45ms);
  CHECK(b.end(t0 + 40ms) == doctest::Approx(1));
  CHECK(b.end(t0 + 55ms) == doctest::Approx(1));
}

TEST_CASE("batches that share a device have it by parts, worked by hand") {
  bench b{2};
  b.send(10ms, t0, t0, 0);              // Alone until 4.
  b.send(10ms, t0 + 4ms, t0 + 4ms, 1);  // Then two.
  // The first has 4 ms, and 6 more at half speed: it ends at 16.
  CHECK(b.end(t0 + 16ms, 0) == doctest::Approx(1));
  // The second has had 6 of 10, and is alone.
  CHECK(b.end(t0 + 20ms, 1) == doctest::Approx(1));
}

TEST_CASE("what fails, or takes no time, tells nothing") {
  bench b;
  b.send(10ms, t0, t0);
  CHECK(b.end(t0, 0, true) == 0);
  b.send(10ms, t0, t0);
  CHECK(b.end(t0) == 0);
  b.send(10ms, t0 + 1ms, t0 + 1ms);
  CHECK(b.end(t0 + 6ms) == doctest::Approx(0.5));
}

TEST_CASE("a slow device among others is told apart from a profile that is wrong") {
  constexpr std::uint32_t devices = 8;
  bench b;
  for (std::uint32_t d = 1; d < devices; ++d) b.times.add_device(device_id{d}, 1);
  time_point now = t0;
  const auto round = [&](duration first, duration others) {  // A batch on each.
    for (std::uint32_t d = 0; d < devices; ++d) b.send(10ms, now, now, 0, device_id{d});
    const auto end = [&](std::uint32_t d, duration took) {
      return bench::ratio_of(b.times.on_complete(device_id{d}, now + took, false, acquaintances{}));
    };
    double ratio = 0;
    for (std::uint32_t d = 1; d < devices; ++d) ratio = end(d, others);
    const double own = end(0, first);
    now += 100ms;
    return std::pair{own, ratio};
  };
  for (int i = 0; i < 50; ++i) round(20ms, 10ms);
  CHECK(b.times.device_factor(d0) > 1.7);
  CHECK(b.times.is_slow(d0));
  CHECK(b.times.device_factor(device_id{3}) == doctest::Approx(1).epsilon(0.1));
  const auto [own, others] = round(20ms, 10ms);
  CHECK(own == doctest::Approx(others).epsilon(0.02));  // What is left is the model's.
  for (int i = 0; i < 50; ++i) round(10ms, 10ms);
  CHECK(b.times.device_factor(d0) == doctest::Approx(1).epsilon(0.05));
  for (int i = 0; i < 50; ++i) round(20ms, 20ms);  // All: no device's fault.
  CHECK(b.times.device_factor(d0) == doctest::Approx(1).epsilon(0.05));
  for (int i = 0; i < 50; ++i) round(40ms, 20ms);
  b.times.add_device(d0, 1);  // Another one of that id.
  CHECK(b.times.device_factor(d0) == 1);
}

}  // namespace
}  // namespace cohort::deferred::batch_times_test
