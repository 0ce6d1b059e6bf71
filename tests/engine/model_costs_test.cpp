// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/model_costs.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <optional>

namespace cohort::engine::model_costs_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point at(duration since) { return time_point{} + since; }
constexpr model_id poisoned{0}, sound{1};
constexpr device_id first{0}, second{1};

struct fixture {
  fixture() {
    costs.add_model(poisoned);
    costs.add_model(sound);
  }
  model_costs costs;
};

TEST_CASE("a model that costs two devices within a minute is suspended for ten seconds") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(f.costs.is_suspended(poisoned, at(0s)));
  CHECK(f.costs.note(poisoned, second, at(60s)) == std::optional<duration>{10s});
  CHECK(f.costs.is_suspended(poisoned, at(70s) - 1ns));
  CHECK_FALSE(f.costs.is_suspended(poisoned, at(70s)));
  CHECK_FALSE(f.costs.is_suspended(sound, at(60s)));
}
TEST_CASE("one device as often as may be, or two a minute apart, suspend no model") {
  fixture f;
  for (int i = 0; i < 100; ++i) CHECK_FALSE(f.costs.note(poisoned, first, at(1s * i)));
  CHECK_FALSE(f.costs.note(poisoned, second, at(99s + 60s + 1ns)));
}
TEST_CASE("a device that is cost by another model in between clears both models") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(f.costs.note(sound, first, at(1s)));
  CHECK_FALSE(f.costs.note(poisoned, second, at(2s)));
}
TEST_CASE(
    "after its suspension one device is enough, for twice as long, until a minute was quiet") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK(f.costs.note(poisoned, second, at(1s)));
  CHECK_FALSE(f.costs.note(poisoned, first, at(2s)));  // Of a batch that was sent before.
  CHECK(f.costs.note(poisoned, first, at(71s)) == std::optional<duration>{20s});
  CHECK_FALSE(f.costs.note(poisoned, first, at(71s + 20s + 60s + 1ns)));
}
TEST_CASE("a suspension lasts ten minutes at most") {
  fixture f;
  time_point now = at(0s);
  CHECK_FALSE(f.costs.note(poisoned, first, now));
  duration lasts = f.costs.note(poisoned, second, now).value();
  for (const duration expected : {20s, 40s, 80s, 160s, 320s, 600s, 600s}) {
    now += lasts;
    lasts = f.costs.note(poisoned, second, now).value();
    CHECK(lasts == expected);
  }
}
TEST_CASE("a new model under the id is not to blame for the old one") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK(f.costs.note(poisoned, second, at(1s)));
  f.costs.add_model(poisoned);
  CHECK_FALSE(f.costs.is_suspended(poisoned, at(1s)));
  CHECK_FALSE(f.costs.note(poisoned, first, at(2s)));
}

}  // namespace
}  // namespace cohort::engine::model_costs_test
