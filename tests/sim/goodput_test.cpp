// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/goodput.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cmath>
#include <random>

namespace cohort::sim::goodput_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("the highest rate is found to the precision, from any guess") {
  std::mt19937_64 random{11};
  for (int i = 0; i < 300; ++i) {
    const double peak = std::exp(std::uniform_real_distribution<double>{0, 15}(random));
    const double guess = std::exp(std::uniform_real_distribution<double>{-3, 18}(random));
    const double precision = std::exp(std::uniform_real_distribution<double>{-9, -1}(random));
    CAPTURE(peak);
    CAPTURE(guess);
    CAPTURE(precision);
    int calls = 0;
    const double found = find_highest_rate(guess, 0.05, 1e9, precision, [&](double rate) {
      ++calls;
      return rate <= peak;
    });
    CHECK(found <= peak);
    CHECK(found * (1 + precision) * (1 + 1e-9) >= peak);
    CHECK(calls < 50);
  }
}

TEST_CASE("a rate that can be quoted is found: it has few digits") {
  const double found =
      find_highest_rate(5839, 1, 1e9, 0.01, [](double rate) { return rate <= 5333.33; });
  CHECK(found == std::round(found));
}

TEST_CASE("the ends of the range are answers too") {
  CHECK(find_highest_rate(100, 1, 1000, 0.01, [](double) { return true; }) == 1000);
  CHECK(find_highest_rate(100, 1, 1000, 0.01, [](double) { return false; }) == 0);
  CHECK(find_highest_rate(1e6, 1, 1000, 0.01, [](double rate) { return rate < 1.5; }) ==
        doctest::Approx(1.5).epsilon(0.011));
}

TEST_CASE("the smallest count is found exactly, from any guess") {
  for (std::uint32_t answer = 1; answer <= 300; ++answer) {
    for (std::uint32_t guess : {0U, 1U, answer, 2 * answer, 5000U}) {
      CAPTURE(answer);
      CAPTURE(guess);
      CHECK(find_smallest_count(guess, 300, [&](std::uint32_t n) { return n >= answer; }) ==
            answer);
    }
  }
  CHECK_FALSE(find_smallest_count(3, 300, [](std::uint32_t n) { return n > 300; }).has_value());
}

run_result with_bad_rates(std::initializer_list<double> bad) {
  run_result r;
  for (double b : bad) {
    r.per_model.emplace_back();
    r.per_model.back().bad_rate = b;
  }
  return r;
}

TEST_CASE("each model's bad rate is averaged over the seeds, and the worst model decides") {
  const std::vector<run_result> runs{with_bad_rates({0.0, 0.03}), with_bad_rates({0.02, 0.0})};
  CHECK(average_bad_rates(runs) == std::vector<double>{0.01, 0.015});
  CHECK(meets_every_slo(runs, 0.015));
  CHECK_FALSE(meets_every_slo(runs, 0.0149));
}

TEST_CASE("judged in total, a model that is bad alone does not decide") {
  std::vector<run_result> runs{with_bad_rates({0.0, 0.5}), with_bad_rates({0.0, 0.5})};
  runs[0].bad_rate = 0.01;
  runs[1].bad_rate = 0.02;
  CHECK(average_bad_rate(runs) == 0.015);
  CHECK(meets(runs, {.bad_limit = 0.015, .judge = judged::total}));
  CHECK_FALSE(meets(runs, {.bad_limit = 0.0149, .judge = judged::total}));
  CHECK_FALSE(meets(runs, {.bad_limit = 0.015}));
}

workload resnet50() {
  workload w;
  w.devices = 8;
  w.models = {{.name = "ResNet50", .latency = linear_latency{5072us, 1053us}, .slo = 25ms}};
  return w;
}

TEST_CASE("the staggered load of the specification's model is 1 / 5839") {
  CHECK(8 / staggered_load(resnet50()) == doctest::Approx(5839).epsilon(0.0005));
}

TEST_CASE("runs take the seeds from the first on, and rate and workload as given") {
  const auto runs = run_seeds(resnet50(), 70, {.seeds = 4, .seed = 9},
                              [](const workload& w, const run_options& o) {
                                run_result r;
                                r.offered_rps = o.rate + w.devices;
                                r.arrived = o.seed;
                                return r;
                              });
  REQUIRE(runs.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(runs[i].arrived == 9 + i);
    CHECK(runs[i].offered_rps == 78);
  }
}

/// A made-up system: a model is bad in proportion to what exceeds 1000 r/s a device.
run_result made_up(const workload& w, const run_options& o) {
  const double capacity = 1000.0 * w.devices;
  run_result r = with_bad_rates({std::max(0.0, (o.rate - capacity) / o.rate)});
  r.offered_rps = o.rate;
  return r;
}

TEST_CASE("goodput is where the bad rate reaches the limit") {
  // (r − 8000) / r = 0.01 at 8080.8.
  const auto found = find_goodput(resnet50(), {.precision = 0.001, .seeds = 1}, 1e6, made_up);
  CHECK(found.goodput == doctest::Approx(8080.8).epsilon(0.0011));
  CHECK(found.goodput <= 8080.81);
  REQUIRE(found.at_peak.has_value());
  CHECK(found.at_peak->offered_rps == found.goodput);
  CHECK_FALSE(found.beyond);
  CHECK(find_goodput(resnet50(), {}, 5000, made_up).beyond);
  for (const double guess : {1.0, 8080.0, 1e5}) {
    const search_options o{.precision = 0.001, .seeds = 1, .guess = guess};
    CHECK(find_goodput(resnet50(), o, 1e6, made_up).goodput ==
          doctest::Approx(8080.8).epsilon(0.0011));
  }
}

TEST_CASE("the fewest devices are those whose bad rate is within the limit") {
  CHECK(find_min_devices(resnet50(), 12345, 100, {}, made_up) == 13U);
  CHECK(find_min_devices(resnet50(), 12120, 100, {}, made_up) == 12U);  // 0.99 % bad.
  CHECK_FALSE(find_min_devices(resnet50(), 12345, 12, {}, made_up).has_value());
}

TEST_CASE("options outside their ranges are refused") {
  CHECK_THROWS_AS((void)find_goodput(resnet50(), {.precision = 0}, 1e6, made_up), config_error);
  CHECK_THROWS_AS((void)find_goodput(resnet50(), {.bad_limit = 1}, 1e6, made_up), config_error);
  CHECK_THROWS_AS((void)find_goodput(resnet50(), {.seeds = 0}, 1e6, made_up), config_error);
  CHECK_THROWS_AS((void)find_goodput(resnet50(), {.guess = -1}, 1e6, made_up), config_error);
  CHECK_THROWS_AS((void)find_min_devices(resnet50(), 1, 0, {}, made_up), config_error);
}

TEST_CASE("with constant gaps deferred scheduling reaches the staggered bound without a drop") {
  workload w = resnet50();
  w.arrivals = arrival_process::uniform;
  const auto make = [](const deferred::network_delays& d) { return deferred::scheduler{d}; };
  const auto run = [&](const workload& load, const run_options& o) {
    return simulate(load, make, o, [](time_point) {});
  };
  const auto found = find_goodput(w, {.precision = 0.001, .bad_limit = 0, .seeds = 1}, 1e6, run);
  CHECK(found.goodput == doctest::Approx(5837).epsilon(0.002));
}

}  // namespace
}  // namespace cohort::sim::goodput_test
