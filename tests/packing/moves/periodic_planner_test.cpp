// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/moves/periodic_planner.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/exact_partition.hpp>
#include <cohort/packing/packers/squishy.hpp>

#include <packing/random_demand.hpp>

#include <chrono>
#include <support/complaint.hpp>

namespace cohort::packing::periodic_planner_test {
namespace {
using namespace std::chrono_literals;

const latency_grid& grid() {
  static const latency_grid g{{test::unit_model("a", 40), test::unit_model("b", 40)},
                              test::halves()};
  return g;
}
periodic_planner_options exactly() {
  return {.forecast = {.level_weight = 1, .trend_weight = 0, .deviations = 0},
          .replan = {.period = 1s, .violation_threshold = 0.1, .rise = 0, .under_use = 0.5},
          .margin = 0.25,
          .least_gain_pct = 0};
}

TEST_CASE("a plan is made when a rate leaves what was planned for, with the margin") {
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  const plan first = r.plan_for({80, 0});
  CHECK(r.planned_rps() == std::vector<double>{100, 0});
  CHECK(verify(grid(), {.gpus = 2, .rates_rps = {100, 0}}, first).empty());
  const std::uint64_t as_planned[] = {80, 0};
  CHECK_FALSE(r.end_period(as_planned, 80, 8));  // 10 % violated: not above the threshold.
  CHECK(r.end_period(as_planned, 80, 9));
  const std::uint64_t more[] = {80, 40};
  const std::optional<plan> next = r.end_period(more, 120, 0);
  REQUIRE(next);
  CHECK(r.planned_rps() == std::vector<double>{100, 50});
  CHECK(verify(grid(), {.gpus = 2, .rates_rps = {100, 50}}, *next).empty());
  const std::uint64_t few[] = {60, 0};
  CHECK_FALSE(r.end_period(few, 60, 0));  // 75 of 150 planned: not below half.
  const std::uint64_t fewer[] = {59, 0};
  CHECK(r.end_period(fewer, 59, 0));
}
TEST_CASE("models with a least rate keep a place, and one that cannot have it takes none away") {
  periodic_planner_options o = exactly();
  o.least_rps = {1, 1};
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, o};
  static_cast<void>(r.plan_for({80, 80}));
  const std::uint64_t one[] = {80, 0};
  const std::optional<plan> next = r.end_period(one, 80, 80);
  REQUIRE(next);
  CHECK(r.planned_rps() == std::vector<double>{100, 1.25});

  // L(1) of the second is 2 ms on the whole device: no plan keeps an SLO of 2.5 ms.
  const latency_grid tight{{test::unit_model("a", 40), test::unit_model("b", 2.5)}, test::halves()};
  periodic_planner hard{tight, {.gpus = 2}, elastic{}, o};
  static_cast<void>(hard.plan_for({80, 0}));
  const std::uint64_t both[] = {100, 3};
  const std::optional<plan> rest = hard.end_period(both, 103, 103);
  REQUIRE(rest);
  CHECK_FALSE(rest->empty());
  REQUIRE(hard.missing().left_out.size() == 1);
  CHECK(hard.missing().left_out[0].model == 1);
  CHECK_THROWS_AS((periodic_planner{grid(), {.gpus = 1}, elastic{}, {.least_rps = {-1}}}),
                  config_error);
}
TEST_CASE("a period that was longer than it should be has no higher rate") {
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  static_cast<void>(r.plan_for({80, 0}));
  const std::uint64_t four[] = {320, 0};
  CHECK_FALSE(r.end_period(four, 320, 0, 4s));  // 80 a second: as planned.
}
TEST_CASE("a load that only varies as counts do keeps its plan") {
  cohort::test::random_source random{1};
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, {.replan = {.period = 1s}}};
  static_cast<void>(r.plan_for({200, 50}));
  int plans = 0;
  for (int i = 0; i < 500; ++i) {
    // The sum of many chances is near a Poisson count of mean 200 and of 50.
    std::uint64_t counts[2] = {0, 0};
    for (int k = 0; k < 2000; ++k) {
      counts[0] += random.one_in(10);
      counts[1] += random.one_in(40);
    }
    plans += r.end_period(counts, counts[0] + counts[1], 0).has_value();
  }
  CHECK(plans <= 10);
  const std::uint64_t twice[] = {400, 100};
  CHECK(r.end_period(twice, 500, 0));
}
TEST_CASE("violations that a new plan does not end ask for the next ones ever later") {
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  static_cast<void>(r.plan_for({80, 80}));
  const std::uint64_t as_planned[] = {80, 80};
  std::vector<int> at;
  for (int i = 1; i <= 30; ++i) {
    if (r.end_period(as_planned, 160, 160)) at.push_back(i);
  }
  CHECK(at == std::vector<int>{1, 2, 4, 8, 16, 24});
  CHECK_FALSE(r.end_period(as_planned, 160, 0));
  CHECK(r.end_period(as_planned, 160, 160));  // They had ended.
}
TEST_CASE("a smaller plan must free enough to be worth its moves") {
  periodic_planner_options o = exactly();
  o.least_gain_pct = 51;
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, o};
  // Above what a half carries (444): a whole device; then a half.
  CHECK(used_pct(r.plan_for({640, 0})) == 100);
  const std::uint64_t few[] = {100, 0};
  CHECK_FALSE(r.end_period(few, 100, 0));
  CHECK(r.planned_rps() == std::vector<double>{800, 0});
  o.least_gain_pct = 50;
  periodic_planner willing{grid(), {.gpus = 2}, elastic{}, o};
  CHECK(used_pct(willing.plan_for({640, 0})) == 100);
  const std::optional<plan> next = willing.end_period(few, 100, 0);
  REQUIRE(next);
  CHECK(used_pct(*next) == 50);
  CHECK(willing.planned_rps() == std::vector<double>{125, 0});
}
TEST_CASE("a load that stays beyond the devices is not planned for again and again") {
  periodic_planner r{grid(), {.gpus = 1}, elastic{}, exactly()};
  CHECK_FALSE(r.plan_for({1000, 0}).empty());
  CHECK(r.missing().part < 1);
  const std::uint64_t as_before[] = {1000, 0};
  CHECK_FALSE(r.end_period(as_before, 1000, 0));
  // Once all of it can be served it is, though that frees nothing.
  const std::uint64_t fewer[] = {490, 0};
  CHECK(r.end_period(fewer, 490, 0));
  CHECK(r.missing().part == 1);
}
TEST_CASE("a demand beyond the devices is scaled down until it fits") {
  periodic_planner r{grid(), {.gpus = 1}, elastic{}, exactly()};
  // The whole device does 8 in 9 ms: at most 888.9 a second of one model.
  const plan p = r.plan_for({1000, 0});
  const double served = r.planned_rps()[0];
  CHECK(served <= 8 / 9.0 * 1000);
  CHECK(served > 8 / 9.0 * 1000 * 0.97);
  CHECK(verify(grid(), {.gpus = 1, .rates_rps = {served, 0}}, p).empty());
}
TEST_CASE("of a demand far beyond the devices the largest multiple is served, by every packer") {
  const auto serves = [](auto pack, double rate) {
    periodic_planner r{grid(), {.gpus = 1}, pack, exactly()};
    const plan p = r.plan_for({rate, 0});
    const double served = r.planned_rps()[0];
    CHECK(served <= 8 / 9.0 * 1000 * (1 + 1e-9));
    CHECK(served > 8 / 9.0 * 1000 * 0.99);
    CHECK(verify(grid(), {.gpus = 1, .rates_rps = {served, 0}}, p).empty());
    CHECK(r.missing().part == doctest::Approx(served / (1.25 * rate)));
    CHECK_FALSE(r.missing().reason.empty());
    CHECK(r.missing().left_out.empty());
  };
  for (const double rate : {800.0, 1e4, 1e5, 1e9}) {
    CAPTURE(rate);
    serves(elastic{}, rate);
    serves(squishy, rate);
    serves(exact_partition{}, rate);
  }
  // A rate that jumps does not tear down what works.
  periodic_planner r{grid(), {.gpus = 1}, elastic{}, exactly()};
  CHECK_FALSE(r.plan_for({100, 100}).empty());
  CHECK(r.missing().part == 1);
  CHECK(r.missing().reason.empty());
  const std::uint64_t jumped[] = {100, 20'000};
  const std::optional<plan> next = r.end_period(jumped, 100, 100);
  REQUIRE(next);
  CHECK_FALSE(next->empty());
  CHECK(r.planned_rps()[1] > 700);
  CHECK(r.planned_rps()[1] == doctest::Approx(200 * r.planned_rps()[0]));
}
TEST_CASE("models that cannot be served at any rate are left out, and nothing else is") {
  // At best 2 · 2 ms; and more memory than a device has.
  const latency_grid g{{test::unit_model("tight", 3.9), test::unit_model("a", 40, 500),
                        test::unit_model("b", 40, 600), test::unit_model("large", 40, 1001)},
                       test::halves()};
  periodic_planner r{g, {.gpus = 2, .memory_mb = 1000}, elastic{}, exactly()};
  plan p = r.plan_for({1, 80, 40, 1});
  CHECK(r.planned_rps() == std::vector<double>{0, 100, 50, 0});
  CHECK(verify(g, {.gpus = 2, .memory_mb = 1000, .rates_rps = {0, 100, 50, 0}}, p).empty());
  CHECK(r.missing().part == 1);
  REQUIRE(r.missing().left_out.size() == 2);
  CHECK(r.missing().left_out[0].model == 0);
  CHECK(cohort::test::gist(r.missing().left_out[0].reason) == "tight: ... 4 ms ... SLO ... 3.9 ms");
  CHECK(r.missing().left_out[1].model == 3);
  CHECK(cohort::test::gist(r.missing().left_out[1].reason) ==
        "large: ... 1001 MB ... device ... 1000");
  // As long as nothing else changes they do not ask for another plan.
  const std::uint64_t as_before[] = {1, 80, 40, 1};
  CHECK_FALSE(r.end_period(as_before, 122, 2));
  // They stay out when the others are scaled.
  p = r.plan_for({1e4, 1e4, 1e4, 1e4});
  CHECK(r.missing().left_out.size() == 2);
  CHECK(r.planned_rps()[0] == 0);
  CHECK(r.planned_rps()[1] > 800);
  CHECK(r.planned_rps()[1] == r.planned_rps()[2]);
  CHECK(r.missing().part == doctest::Approx(r.planned_rps()[1] / 12'500));
  // Nothing to serve but them: nothing is.
  CHECK(r.plan_for({1, 0, 0, 1}).empty());
  CHECK(r.missing().left_out.size() == 2);
}
TEST_CASE("of models that do not fit together those with the largest rates are served") {
  const latency_grid g{{test::unit_model("a", 40, 600), test::unit_model("b", 40, 600),
                        test::unit_model("c", 40, 300)},
                       test::halves()};
  periodic_planner r{g, {.gpus = 1, .memory_mb = 1000}, elastic{}, exactly()};
  const plan p = r.plan_for({40, 80, 8});
  CHECK(r.planned_rps() == std::vector<double>{0, 100, 10});
  CHECK(verify(g, {.gpus = 1, .memory_mb = 1000, .rates_rps = {0, 100, 10}}, p).empty());
  REQUIRE(r.missing().left_out.size() == 1);
  CHECK(r.missing().left_out[0].model == 0);
  CHECK(cohort::test::gist(r.missing().left_out[0].reason) ==
        "... models ... 1200 MB ... devices ... 1000");
}
TEST_CASE("on fewer devices what fits is planned at once, and the rest when they are back") {
  // A device carries 889 a second of one model within an SLO of 40 ms: one each.
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  const plan all = r.plan_for({640, 640});
  CHECK(r.missing().part == 1);
  CHECK(used_pct(all) == 200);
  const plan one = r.plan_on(1);
  REQUIRE_FALSE(one.empty());
  for (const gpulet& g : one) CHECK(g.gpu == device_id{0});
  CHECK(used_pct(one) <= 100);
  CHECK(r.missing().part < 0.6);
  CHECK(r.planned_rps()[0] == doctest::Approx(800 * r.missing().part));
  CHECK(verify(grid(), {.gpus = 1, .rates_rps = r.planned_rps()}, one).empty());
  // As long as there is one, plans are for that; the load has not changed.
  const std::uint64_t as_before[] = {640, 640};
  CHECK_FALSE(r.end_period(as_before, 1280, 0));
  // Back: for the same load, which now fits.
  const plan again = r.plan_on(2);
  CHECK(r.missing().part == 1);
  CHECK(r.planned_rps() == std::vector<double>{800, 800});
  CHECK(again == all);
}
TEST_CASE("what others planned is planned again without its margin once more") {
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  periodic_planner maker{grid(), {.gpus = 2}, elastic{}, exactly()};
  const plan p = maker.plan_for({80, 40});
  r.adopt(p);
  CHECK(r.planned_rps()[0] == doctest::Approx(100));
  static_cast<void>(r.plan_on(1));
  CHECK(r.planned_rps()[0] == doctest::Approx(100));
  CHECK(r.planned_rps()[1] == doctest::Approx(50));
}
TEST_CASE("without any device nothing is planned, and periods are counted all the same") {
  periodic_planner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  static_cast<void>(r.plan_for({80, 40}));
  CHECK(r.plan_on(0).empty());
  CHECK(r.missing().part == 0);
  CHECK(cohort::test::gist(r.missing().reason) == "no device ... service");
  CHECK(r.planned_rps() == std::vector<double>{0, 0});
  const std::uint64_t risen[] = {160, 40};
  CHECK_FALSE(r.end_period(risen, 200, 200));
  CHECK_FALSE(r.plan_on(2).empty());
  CHECK(r.planned_rps() == std::vector<double>{200, 50});  // What came meanwhile.
}
TEST_CASE("a periodic_planner refuses what it cannot use") {
  periodic_planner_options o = exactly();
  o.margin = -0.1;
  CHECK_THROWS_AS((periodic_planner{grid(), {.gpus = 1}, elastic{}, o}), config_error);
  o = exactly();
  o.ahead = -1;
  CHECK_THROWS_AS((periodic_planner{grid(), {.gpus = 1}, elastic{}, o}), config_error);
}
}  // namespace
}  // namespace cohort::packing::periodic_planner_test
