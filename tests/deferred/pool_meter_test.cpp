// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/pool_meter.hpp>

#include <doctest/doctest.h>

namespace cohort::deferred::pool_meter_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a new pool counts as idle and as shared by one model") {
  const pool_meter m;
  CHECK(m.idle_fraction() == 1);
  CHECK(m.view(3).devices == 3);
  CHECK(m.view(3).typical_batch == 0ms);
  CHECK(m.view(3).models == 1);
}
TEST_CASE("the idle fraction is that of the last quarter second, more or less") {
  pool_meter m;
  time_point now = t0;
  const auto run = [&](duration length, std::size_t idle) {
    for (const time_point end = now + length; now < end;) m.on_time(now += 1ms, idle, 4);
  };
  run(3s, 1);
  CHECK(m.idle_fraction() == doctest::Approx(0.25).epsilon(0.001));
  run(260ms, 4);  // Five steps of some 50 ms, each a fifth of the way: 1 - 0.75 · 0.8⁵.
  CHECK(m.idle_fraction() == doctest::Approx(0.754).epsilon(0.02));
  run(3s, 0);
  CHECK(m.idle_fraction() == doctest::Approx(0).epsilon(0.001));
}
TEST_CASE("time that does not pass, and a pool without devices, leave the idle fraction alone") {
  pool_meter m;
  m.on_time(t0, 0, 2);
  m.on_time(t0, 0, 2);
  m.on_time(t0 + 10s, 0, 0);
  CHECK(m.idle_fraction() == 1);
}
TEST_CASE("models count by the square of their device time") {
  pool_meter m;
  m.reserve_models(4);
  for (int i = 0; i < 20000; ++i) m.on_batch(model_id{static_cast<std::uint32_t>(i % 4)}, 5ms);
  CHECK(m.view(1).models == doctest::Approx(4).epsilon(0.01));
  // One model with nine tenths of the time: 1 / (0.81 + 0.01).
  for (int i = 0; i < 20000; ++i) {
    m.on_batch(model_id{static_cast<std::uint32_t>(i % 2)}, i % 2 == 0 ? 9ms : 1ms);
  }
  CHECK(m.view(1).models == doctest::Approx(1 / 0.82).epsilon(0.01));
}
TEST_CASE("after any number of batches the sums stay exact") {
  pool_meter m;
  m.reserve_models(3);
  for (int i = 0; i < 400000; ++i) m.on_batch(model_id{static_cast<std::uint32_t>(i % 3)}, 1ms);
  CHECK(m.view(1).models == doctest::Approx(3).epsilon(0.01));
  CHECK(to_ms(m.view(1).typical_batch) == doctest::Approx(1));
}
}  // namespace
}  // namespace cohort::deferred::pool_meter_test
