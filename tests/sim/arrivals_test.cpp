// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/arrivals.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace cohort::sim::arrivals_test {
namespace {
using namespace std::chrono_literals;

workload with_models(std::size_t count) {
  workload w;
  for (std::size_t i = 0; i < count; ++i) {
    w.models.push_back(
        {.name = std::to_string(i), .latency = linear_latency{5ms, 1ms}, .slo = 12ms});
  }
  return w;
}

/// All arrivals before `end`, by model.
std::vector<std::vector<double>> draw(const workload& w, double rate, std::uint64_t seed,
                                      duration end) {
  std::vector<std::vector<double>> out(w.models.size());
  arrival_stream s{w, rate, seed};
  time_point last{};
  while (s.next() < time_point{end}) {
    const time_point at = s.next();
    CHECK(at >= last);
    last = at;
    out[s.take()].push_back(to_seconds(at));
  }
  return out;
}

/// Mean and squared coefficient of variation of the gaps.
std::pair<double, double> gaps(const std::vector<double>& at) {
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < at.size(); ++i) {
    sum += at[i] - at[i - 1];
    squares += (at[i] - at[i - 1]) * (at[i] - at[i - 1]);
  }
  const auto n = static_cast<double>(at.size() - 1);
  const double mean = sum / n;
  return {mean, squares / n / (mean * mean) - 1};
}

TEST_CASE("Poisson arrivals keep the rate, divided by the shares, with gaps of variation 1") {
  workload w = with_models(2);
  w.models[0].share = 3;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    const auto at = draw(w, 1000, seed, 100s);
    CHECK(static_cast<double>(at[0].size()) == doctest::Approx(75000).epsilon(0.02));
    CHECK(static_cast<double>(at[1].size()) == doctest::Approx(25000).epsilon(0.03));
    CHECK(gaps(at[0]).second == doctest::Approx(1).epsilon(0.05));
  }
}

TEST_CASE("gamma arrivals keep the rate, and their gaps' variation is 1 / shape") {
  workload w = with_models(1);
  w.arrivals = arrival_process::gamma;
  for (double shape : {1.0, 0.5, 0.1}) {
    CAPTURE(shape);
    w.shape = shape;
    const auto at = draw(w, 1000, 5, 200s);
    const auto [mean, variation] = gaps(at[0]);
    CHECK(mean == doctest::Approx(0.001).epsilon(0.03));
    CHECK(variation == doctest::Approx(1 / shape).epsilon(0.06));
  }
}

TEST_CASE("uniform arrivals have constant gaps and a phase of their own for each model") {
  workload w = with_models(2);
  w.arrivals = arrival_process::uniform;
  const auto at = draw(w, 200, 9, 10s);
  for (const auto& one : at) {
    REQUIRE(one.size() == 1000);
    CHECK(one.front() < 0.01);
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(one[i] == doctest::Approx(one[0] + 0.01 * static_cast<double>(i)).epsilon(1e-9));
    }
  }
  CHECK(at[0][0] != at[1][0]);
  CHECK(draw(w, 200, 10, 1s)[0][0] != at[0][0]);
}

TEST_CASE("runs of one seed at two rates see the same pattern, stretched") {
  workload w = with_models(1);
  const auto slow = draw(w, 100, 4, 10s);
  const auto fast = draw(w, 200, 4, 5s);
  REQUIRE(slow[0].size() >= fast[0].size() - 1);
  REQUIRE(fast[0].size() >= 400);
  for (std::size_t i = 0; i < 400; ++i) {
    CHECK(slow[0][i] == doctest::Approx(2 * fast[0][i]).epsilon(1e-6));
  }
}

TEST_CASE("a trace is replayed as it is, and then nothing comes") {
  workload w = with_models(2);
  w.arrivals = arrival_process::trace;
  w.trace = {{time_point{1ms}, 1}, {time_point{1ms}, 0}, {time_point{4ms}, 1}};
  arrival_stream s{w, 0, 1};
  CHECK(s.next() == time_point{1ms});
  CHECK(s.take() == 1);
  CHECK(s.next() == time_point{1ms});
  CHECK(s.take() == 0);
  CHECK(s.next() == time_point{4ms});
  CHECK(s.take() == 1);
  CHECK(s.next() == never);
}

TEST_CASE(
    "a model without a share never arrives, and one of a tiny share not within the timeline") {
  workload w = with_models(3);
  w.models[0].share = 0;
  w.models[1].share = 1e-12;
  const auto at = draw(w, 1000, 1, 1s);
  CHECK(at[0].empty());
  CHECK(at[1].empty());
  CHECK(at[2].size() > 900);
  w.models[2].share = 0;
  w.models[1].share = 1;
  CHECK(arrival_stream{w, 1e-300, 1}.next() == never);
}

TEST_CASE("a model may have a process of its own") {
  workload w = with_models(3);
  w.models[1].arrivals = own_arrivals{arrival_process::uniform};
  w.models[2].arrivals = own_arrivals{arrival_process::gamma, 4};
  const auto at = draw(w, 3000, 1, 20s);
  CHECK(gaps(at[0]).second == doctest::Approx(1).epsilon(0.1));
  CHECK(gaps(at[1]).second < 1e-6);
  CHECK(gaps(at[2]).second == doctest::Approx(0.25).epsilon(0.1));
}

}  // namespace
}  // namespace cohort::sim::arrivals_test
