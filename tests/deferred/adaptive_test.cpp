// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <cohort/deferred/adaptive.hpp>

namespace cohort::deferred {
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
TEST_CASE("the adaptive target is the smallest batch of nearly the staggered efficiency") {
  const load_view poisson{.rate = 5500, .variability = 1, .device_part = 1};
  // Staggered: 16 of 21.92 ms, 0.7299 a ms. 94 % of it: 13 of 18.761 ms has 0.6929, 12 has 0.6776.
  CHECK(staggered_target{}.target(poisson, 25ms, resnet50()) == 16);
  CHECK(adaptive_target{}.target(poisson, 25ms, resnet50()) == 13);
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
  CHECK(adaptive_window{}.opens(view({.idle_fraction = 0.5})) == t0 + 25ms - 16655us);
}
TEST_CASE("the adaptive window opens at once for a full batch while devices are scarce") {
  batch_view b = view({.idle_fraction = 0.01});
  b.size = 15;  // 1.1 targets are 14.3.
  CHECK(adaptive_window{}.opens(b) == distant_past);
  b.load.idle_fraction = 0.2;
  CHECK(adaptive_window{}.opens(b) > t0);
}
TEST_CASE("the adaptive window is at least a part of the gathering time while devices are scarce") {
  // (25 - 18.761) * 0.18 = 1.123 ms before the latest start, which is more than l(11) - l(10).
  const time_point opens = adaptive_window{}.opens(view({.variability = 1, .idle_fraction = 0}));
  CHECK(to_ms(opens) == doctest::Approx(25 - 15.602 - 1.12302));
}
TEST_CASE("a blocked model may start early, as far as what idles pays for it") {
  load_view blocked{
      .bad_rate = 0.01, .idle_fraction = 0.2, .typical_batch = 60ms, .device_part = 0.1};
  // 10 / 15.602 is 92.5 % of 13 / 18.761; 1 - 2 (0.2 - 0.01) is 62 %.
  CHECK(adaptive_window{}.opens(view(blocked)) == distant_past);
  blocked.idle_fraction = 0.02;  // 98 %.
  CHECK(adaptive_window{}.opens(view(blocked)) > t0);
  blocked.idle_fraction = 0.2;
  blocked.device_part = 0.9;  // It blocks itself.
  CHECK(adaptive_window{}.opens(view(blocked)) > t0);
  blocked.device_part = 0.1;
  blocked.typical_batch = 20ms;  // Others' batches are as short as its own: it was a burst.
  CHECK(adaptive_window{}.opens(view(blocked)) > t0);
}
TEST_CASE("a bad model gains urgency, up to a bound") {
  const time_point calm = adaptive_priority{}.urgency(view({}));
  CHECK(calm == t0 + 25ms - 15602us);
  CHECK(adaptive_priority{}.urgency(view({.bad_rate = 0.01})) == calm - 750us);  // 3 · 1 % of 25.
  CHECK(adaptive_priority{}.urgency(view({.bad_rate = 0.5})) == calm - 3750us);
}
TEST_CASE("crowding is near 0 for a few models and near 1 for one of many") {
  CHECK(crowding({.device_part = 0.5}) < 1e-4);
  CHECK(crowding({.device_part = 1.0 / 37}) == doctest::Approx(0.645).epsilon(0.01));
}
TEST_CASE("adaptive policies reject options outside of their ranges") {
  CHECK_THROWS_WITH_AS(adaptive_target{adaptive_options{.efficiency = 0}},
                       "adaptive: efficiency must be in (0, 1]", config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.full = 0.5}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.scarce_width = 2}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.scarce_idle = 0}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_bad = 0}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_idle = 2}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_others = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_length = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_window{adaptive_options{.blocked_loss = -1}}, config_error);
  CHECK_THROWS_AS(adaptive_priority{adaptive_options{.boost = -1}}, config_error);
}
}  // namespace
}  // namespace cohort::deferred
