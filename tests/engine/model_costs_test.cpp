// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/model_costs.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <vector>

namespace cohort::engine::model_costs_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point at(duration since) { return time_point{} + since; }
constexpr model_id poisoned{0}, sound{1};
constexpr device_id first{0}, second{1};

struct fixture {
  /// Batches of each model so far: by default one of 20 is the poisoned one's.
  explicit fixture(int of_poisoned = 0, int of_sound = 18) {
    costs.add_model(poisoned);
    costs.add_model(sound);
    for (int i = 0; i < of_poisoned; ++i) costs.ran(poisoned);
    for (int i = 0; i < of_sound; ++i) costs.ran(sound);
  }
  model_costs costs;
};

TEST_CASE(
    "a model of few batches that costs two devices within a minute is suspended for ten seconds") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(f.costs.is_suspended(poisoned, at(0s)));
  CHECK(f.costs.note(poisoned, second, at(60s)) == std::optional<duration>{10s});
  CHECK(f.costs.is_suspended(poisoned, at(70s) - 1ns));
  CHECK_FALSE(f.costs.is_suspended(poisoned, at(70s)));
  CHECK_FALSE(f.costs.is_suspended(sound, at(60s)));
}
TEST_CASE("models that count as one are suspended together, and by what each of them costs") {
  fixture f;
  const model_id one{2}, other{3}, later{4};
  f.costs.add_model(one, model_id{7});
  f.costs.add_model(other, model_id{7});
  CHECK_FALSE(f.costs.note(one, first, at(0s)));
  CHECK(f.costs.note(other, second, at(1s)) == std::optional<duration>{10s});
  f.costs.add_model(later, model_id{7});  // It comes while the others are suspended.
  for (const model_id m : {one, other, later}) {
    CHECK(f.costs.is_suspended(m, at(11s) - 1ns));
    CHECK_FALSE(f.costs.is_suspended(m, at(11s)));
  }
  CHECK_FALSE(f.costs.is_suspended(poisoned, at(1s)));
  std::vector<model_id> alike;
  f.costs.for_each_like(one, [&](model_id m) { alike.push_back(m); });
  CHECK(alike == std::vector{one, other, later});
  f.costs.add_model(other);  // The id is another model's now.
  CHECK_FALSE(f.costs.is_suspended(other, at(5s)));
  CHECK(f.costs.is_suspended(one, at(5s)));
}
TEST_CASE("the more batches a model has, the more devices it may cost before it is suspended") {
  // As many costs as make s^n at most 1/20, e^-3 to be exact; of two devices in turn.
  const auto costs_until_suspended = [](int of_poisoned, int of_sound) {
    fixture f{of_poisoned, of_sound};
    for (int n = 1; n <= 1000; ++n) {
      if (f.costs.note(poisoned, n % 2 == 0 ? first : second, at(1s * n))) return n;
    }
    return 0;
  };
  CHECK(costs_until_suspended(0, 998) == 2);  // 1/1000: two devices all the same.
  CHECK(costs_until_suspended(21, 77) == 2);  // 22/100: 2 * 1.51.
  CHECK(costs_until_suspended(24, 74) == 3);  // 25/100: 3 * 1.39.
  CHECK(costs_until_suspended(49, 49) == 5);  // 50/100: 5 * .69.
  CHECK(costs_until_suspended(89, 9) == 29);  // 90/100: 29 * .105.
  CHECK(costs_until_suspended(9, 0) == 32);   // 10/11: the other has had none: 32 * .095.
}
TEST_CASE("counts of batches follow a load that changes") {
  fixture f;
  for (std::uint64_t i = 0; i < 3 * model_costs::most_counted; ++i) f.costs.ran(poisoned);
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(f.costs.note(poisoned, second, at(1s)));  // Nearly all batches are its own by now.
  for (std::uint64_t i = 0; i < 8 * model_costs::most_counted; ++i) f.costs.ran(sound);
  CHECK_FALSE(f.costs.note(poisoned, first, at(100s)));
  CHECK(f.costs.note(poisoned, second, at(101s)));
}
TEST_CASE("one device as often as may be, or two a minute apart, suspend no model") {
  fixture f;
  for (int i = 0; i < 100; ++i) CHECK_FALSE(f.costs.note(poisoned, first, at(1s * i)));
  CHECK_FALSE(f.costs.note(poisoned, second, at(99s + 60s + 1ns)));
}
TEST_CASE("costs of another model in between weaken the evidence") {
  // Two of three costs with a share of .05: 4.1. Of .2: 1.5; three of four: 2.8, four of five: 4.2.
  fixture rare;
  CHECK_FALSE(rare.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(rare.costs.note(sound, first, at(1s)));
  CHECK(rare.costs.note(poisoned, second, at(2s)));
  fixture f{19, 79};
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(f.costs.note(sound, first, at(1s)));
  CHECK_FALSE(f.costs.note(poisoned, second, at(2s)));
  CHECK_FALSE(f.costs.note(poisoned, first, at(3s)));
  CHECK(f.costs.note(poisoned, second, at(4s)));
}
TEST_CASE("two models that cost devices in turn are suspended both, and a third one is not") {
  fixture f{0, 36};
  constexpr model_id other{2};
  f.costs.add_model(other);
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK_FALSE(f.costs.note(other, first, at(1s)));
  CHECK(f.costs.note(poisoned, second, at(2s)));
  CHECK(f.costs.note(other, second, at(3s)));
  CHECK_FALSE(f.costs.is_suspended(sound, at(3s)));
}
TEST_CASE("the only device there is may be cost twice, and again after a suspension") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s), true));
  CHECK(f.costs.note(poisoned, first, at(1s), true) == std::optional<duration>{10s});
  CHECK(f.costs.note(poisoned, first, at(11s), true) == std::optional<duration>{20s});
  CHECK_FALSE(f.costs.note(poisoned, first, at(92s), true));
}
TEST_CASE(
    "after its suspension one more device is enough, for twice as long, until a minute was quiet") {
  fixture f;
  CHECK_FALSE(f.costs.note(poisoned, first, at(0s)));
  CHECK(f.costs.note(poisoned, second, at(1s)));
  CHECK_FALSE(f.costs.note(poisoned, first, at(2s)));   // Of a batch that was sent before.
  CHECK_FALSE(f.costs.note(poisoned, first, at(71s)));  // That may be the device's fault.
  CHECK(f.costs.note(poisoned, second, at(71s)) == std::optional<duration>{20s});
  CHECK_FALSE(f.costs.note(poisoned, first, at(71s + 20s + 60s + 1ns)));
}
TEST_CASE("a suspension lasts ten minutes at most") {
  fixture f;
  time_point now = at(0s);
  CHECK_FALSE(f.costs.note(poisoned, first, now));
  duration lasts = f.costs.note(poisoned, second, now).value();
  device_id next = first;
  for (const duration expected : {20s, 40s, 80s, 160s, 320s, 600s, 600s}) {
    now += lasts;
    lasts = f.costs.note(poisoned, next, now).value();
    next = next == first ? second : first;
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
