// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/adaptive.hpp>

#include <doctest/doctest.h>
#include <support/complaint.hpp>

namespace cohort::deferred::adaptive_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

// ResNet50: l(b) = 1.053 b + 5.072 ms.
latency_curve resnet50() { return latency_curve{linear_latency{5072us, 1053us}, 18}; }

TEST_CASE("the adaptive target is the staggered one where turns are regular") {
  const load_view regular{.rate = 5500, .variability = 0, .device_part = 1};
  CHECK(irregularity(regular) == 0);
  CHECK(adaptive_target{}.target(regular, 25ms, resnet50()) ==
        staggered_target{}.target(regular, 25ms, resnet50()));
}
TEST_CASE("the adaptive target gives up efficiency as far as batches of its size vary") {
  load_view poisson{.rate = 5500, .variability = 1, .device_part = 1};
  // Staggered: 16 of 21.92 ms, 0.7299 a ms. It may give up 0.24 / 4, 6 %: 13 of 18.761 ms has
  // 0.6929, 12 has 0.6776.
  CHECK(staggered_target{}.target(poisson, 25ms, resnet50()) == 16);
  CHECK(adaptive_target{}.target(poisson, 25ms, resnet50()) == 13);
  poisson.variability = 4;  // 0.24 · 2 / 4, 12 %: 11 of 16.655 ms has 0.6605, 10 has 0.6409.
  CHECK(adaptive_target{}.target(poisson, 25ms, resnet50()) == 11);
}
TEST_CASE("the adaptive target protects no batch where batching gains nothing") {
  const latency_curve bert{linear_latency{159us, 7008us}, 7};
  CHECK(adaptive_target{}.target({.rate = 140, .variability = 1}, 56ms, bert) == 1);
}

batch_view view(load_view load) {
  return {.size = 10,
          .deadline = t0 + 25ms,
          .arrival = t0,
          .slo = 25ms,
          .latency = 15602us,
          .latency_next = 16655us,
          .target = 13,
          .target_latency = 18761us,
          .load = load};
}

TEST_CASE("the adaptive window is the frontrun window while devices idle") {
  CHECK(adaptive_window{}.opens(view({.pool = {.idle_fraction = 0.5}})) == t0 + 25ms - 16655us);
}
TEST_CASE("the adaptive window is at least a part of the gathering time while devices are scarce") {
  // (25 - 18.761) * 0.18 = 1.123 ms before the latest start, which is more than l(11) - l(10).
  const time_point opens = adaptive_window{}.opens(view({.variability = 1}));
  CHECK(to_ms(opens) == doctest::Approx(25 - 15.602 - 1.12302));
}
TEST_CASE("a blocked model may start early, as far as what idles pays for it") {
  load_view blocked{
      .bad_rate = 0.01, .device_part = 0.1, .pool = {.idle_fraction = 0.2, .typical_batch = 60ms}};
  // 10 / 15.602 is 92.5 % of 13 / 18.761; 1 - 2 (0.2 - 0.01) is 62 %.
  CHECK(adaptive_window{}.opens(view(blocked)) == distant_past);
  blocked.pool.idle_fraction = 0.02;  // 98 %.
  CHECK(adaptive_window{}.opens(view(blocked)) > t0);
  blocked.pool.idle_fraction = 0.2;
  blocked.device_part = 0.9;  // It blocks itself.
  CHECK(adaptive_window{}.opens(view(blocked)) > t0);
  blocked.device_part = 0.1;
  blocked.pool.typical_batch = 20ms;  // Others' batches are as short as its own: it was a burst.
  CHECK(adaptive_window{}.opens(view(blocked)) > t0);
}
TEST_CASE("the adaptive window opens earlier where others may hold every device") {
  // Two models share one device evenly, half of its time idle; batches of 20 ms.
  load_view shared{
      .variability = 1,
      .device_part = 0.25,
      .pool = {.devices = 1, .idle_fraction = 0.5, .typical_batch = 20ms, .models = 2}};
  CHECK(contention(shared) == doctest::Approx(0.75));
  batch_view full = view(shared);
  full.size = 13;
  full.latency = 18761us;
  full.latency_next = 19814us;
  // The device is busy with chance 0.5: t = 20 (1 - 0.005 / 0.5) = 19.8 ms, 8 · 0.75 of which
  // is 118.8 ms before 25 - 19.814.
  CHECK(to_ms(adaptive_window{}.opens(full)) == doctest::Approx(5.186 - 118.8));
  // A batch of 10 is 0.92496 as efficient as the target.
  CHECK(to_ms(adaptive_window{}.opens(view(shared))) ==
        doctest::Approx(25 - 16.655 - 118.8 * 0.92496 * 0.92496).epsilon(1e-4));
  // With 24 devices one of them is free: 0.5 to the 24th power is far below the risk.
  shared.pool.devices = 24;
  CHECK(adaptive_window{}.opens(view(shared)) == t0 + 25ms - 16655us);
}
TEST_CASE("models with several devices' worth of work contend little, the only model not at all") {
  load_view load{.variability = 0.25, .device_part = 0.125, .pool = {.devices = 8, .models = 4}};
  CHECK(contention(load) == doctest::Approx(0.875 / 8 / 4));  // (4/8)³ · max(0.25, (4/8)³).
  load.variability = 0;
  CHECK(contention(load) == doctest::Approx(0.875 / 64));
  load.device_part = 1;
  CHECK(contention(load) == 0);
  CHECK(contention({}) == 0);  // Nothing known yet.
}
TEST_CASE("a bad model gains urgency, up to a bound") {
  const time_point calm = adaptive_priority{}.urgency(view({}));
  CHECK(calm == t0 + 25ms - 15602us);
  // 0.05 of a typical batch of 10 ms for each hundredth, up to three of them.
  const auto bad = [](double rate) {
    return view({.bad_rate = rate, .pool = {.devices = 4, .typical_batch = 10ms}});
  };
  CHECK(adaptive_priority{}.urgency(bad(0.01)) == calm - 500us);
  CHECK(adaptive_priority{}.urgency(bad(0.5)) == calm - 1500us);
  CHECK(adaptive_priority{adaptive_options{.boost = 0}}.urgency(bad(0.5)) == calm);
}
TEST_CASE("heads that are kept are given up for no target") {
  const latency_curve l{linear_latency{10ms, 1ms}, 32};
  const load_view load{.rate = 500, .variability = 1, .pool = {.devices = 2}};
  CHECK(adaptive_target{}.target(load, 60ms, l) > 1);
  CHECK(adaptive_target{adaptive_options{.keeps_heads = true}}.target(load, 60ms, l) == 1);
}
TEST_CASE("while enough devices idle a batch may start at once") {
  batch_view b = view({.pool = {.devices = 4, .idle_fraction = 0}});
  b.idle_fraction = 0.3;
  CHECK(adaptive_window{}.opens(b) > t0);
  b.idle_fraction = 0.31;
  CHECK(adaptive_window{}.opens(b) == distant_past);
  CHECK(adaptive_window{adaptive_options{.idle_valve = 1}}.opens(b) > t0);
  b.idle_fraction = 0;
  CHECK(adaptive_window{adaptive_options{.is_eager = true}}.opens(b) == distant_past);
  const adaptive_options brief{.is_eager = true, .hold = 0.1};
  CHECK(adaptive_window{brief}.opens(b) == b.arrival + b.slo / 10);
  b.idle_fraction = 1;
  CHECK(adaptive_window{brief}.opens(b) == b.arrival + b.slo / 10);
}
TEST_CASE("crowding is near 0 for a few models and near 1 for one of many") {
  CHECK(crowding({.device_part = 0.5}) < 1e-4);
  CHECK(crowding({.device_part = 1.0 / 37}) == doctest::Approx(0.645).epsilon(0.01));
}
TEST_CASE("adaptive policies reject options outside of their ranges") {
  CHECK(test::gist_of<config_error>([&] {
          (void)adaptive_target{adaptive_options{.spread = -1}};
        }) == "adaptive: spread ... at least 0");
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.risk = 0}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.ahead = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.scarce_width = 2}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.scarce_idle = 0}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_bad = 0}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_idle = 2}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_others = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_length = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_loss = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_priority{adaptive_options{.boost = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.idle_valve = 1.1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.hold = -0.1}}, config_error);
}
}  // namespace
}  // namespace cohort::deferred::adaptive_test
