// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/settings.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace cohort::deferred::settings_test {
namespace {

TEST_CASE("every setting is a policy within its limits") {
  for (const window_kind w : window_kinds) {
    for (const double q : tried_quantiles) {
      const settings s{.window = w, .quantile = q};
      CHECK_NOTHROW(s.policy().validate());
      CHECK_NOTHROW(s.learns().validate());
      CHECK(s.learns().is_on);
      CHECK(s.learns().quantile == q);
    }
  }
}

TEST_CASE("windows differ in what they are named after") {
  const auto of = [](window_kind w) { return settings{.window = w}.policy(); };
  CHECK(of(window_kind::eager).is_eager);
  CHECK_FALSE(of(window_kind::reserved).is_eager);
  CHECK(of(window_kind::brief).is_eager);
  CHECK(of(window_kind::brief).hold == 0.1);
  CHECK_FALSE(of(window_kind::brief).keeps_heads);
  CHECK(of(window_kind::patient).is_eager);
  CHECK(of(window_kind::patient).hold == 0.35);
  CHECK(of(window_kind::patient).keeps_heads);
  CHECK(of(window_kind::eager).hold == 0);
  CHECK(of(window_kind::reserved).ahead == adaptive_options{}.ahead);
  CHECK(of(window_kind::frontrun).ahead == 0);
  CHECK(of(window_kind::frontrun).idle_valve == adaptive_options{}.idle_valve);
  CHECK(std::string_view{name_of(window_kind::eager)} == "eager");
  CHECK(std::string_view{name_of(window_kind::brief)} == "brief");
  CHECK(std::string_view{name_of(window_kind::patient)} == "patient");
  CHECK(std::string_view{name_of(window_kind::reserved)} == "reserved");
  CHECK(std::string_view{name_of(window_kind::frontrun)} == "frontrun");
  CHECK(std::string_view{name_of(window_kind::deferred)} == "deferred");
}

TEST_CASE("the latest window is that of deferred scheduling, and so is its target") {
  const adaptive_options o = settings{.window = window_kind::deferred}.policy();
  const latency_curve l{linear_latency{std::chrono::milliseconds{5}, std::chrono::milliseconds{1}},
                        32};
  for (const double idle : {0.0, 0.1, 0.5, 1.0}) {
    for (const double variability : {0.0, 1.0, 9.0}) {
      const load_view load{.rate = 100,
                           .variability = variability,
                           .bad_rate = 0.5,
                           .device_part = 0.3,
                           .pool = {.devices = 4,
                                    .idle_fraction = idle,
                                    .typical_batch = std::chrono::milliseconds{30},
                                    .models = 8}};
      const duration slo = std::chrono::milliseconds{60};
      const std::uint32_t target = staggered_target{}.target(load, slo, l);
      CHECK(adaptive_target{o}.target(load, slo, l) == target);
      const batch_view b{.size = 3,
                         .deadline = time_point{} + slo,
                         .arrival = time_point{},
                         .slo = slo,
                         .latency = l(3),
                         .latency_next = l(4),
                         .target = target,
                         .target_latency = l(target),
                         .load = load,
                         .idle_fraction = idle};
      CHECK(adaptive_window{o}.opens(b) == frontrun{}.opens(b));
    }
  }
}

TEST_CASE("quantiles are tried in order, and the usual one is among them") {
  CHECK(std::ranges::is_sorted(tried_quantiles));
  CHECK(std::ranges::find(tried_quantiles, settings{}.quantile) != tried_quantiles.end());
}

}  // namespace
}  // namespace cohort::deferred::settings_test
