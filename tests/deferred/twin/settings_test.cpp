// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/settings.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>

namespace cohort::deferred {
namespace {

TEST_CASE("every setting is a policy within its limits") {
  for (const window_kind w : {window_kind::eager, window_kind::frontrun, window_kind::reserved}) {
    for (const double q : tried_quantiles) {
      for (const bool valve : {false, true}) {
        const settings s{.window = w, .quantile = q, .idle_valve = valve};
        CHECK_NOTHROW(s.policy().validate());
        CHECK_NOTHROW(s.learns().validate());
        CHECK(s.learns().is_on);
        CHECK(s.learns().quantile == q);
      }
    }
  }
}

TEST_CASE("windows differ in what they are named after") {
  const auto of = [](window_kind w) { return settings{.window = w}.policy(); };
  CHECK(of(window_kind::eager).is_eager);
  CHECK_FALSE(of(window_kind::frontrun).is_eager);
  CHECK(of(window_kind::frontrun).ahead == 0);
  CHECK(of(window_kind::reserved).ahead == adaptive_options{}.ahead);
  CHECK(settings{.idle_valve = true}.policy().idle_valve == adaptive_options{}.idle_valve);
  CHECK(settings{.idle_valve = false}.policy().idle_valve == 1);  // Never idler than that.
  CHECK(std::string_view{name_of(window_kind::eager)} == "eager");
  CHECK(std::string_view{name_of(window_kind::frontrun)} == "frontrun");
  CHECK(std::string_view{name_of(window_kind::reserved)} == "reserved");
}

TEST_CASE("quantiles are tried in order, and the usual one is among them") {
  CHECK(std::ranges::is_sorted(tried_quantiles));
  CHECK(std::ranges::find(tried_quantiles, settings{}.quantile) != tried_quantiles.end());
}

}  // namespace
}  // namespace cohort::deferred
