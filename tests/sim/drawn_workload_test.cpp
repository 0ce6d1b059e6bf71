// SPDX-License-Identifier: Apache-2.0
// What benches draw at random.
#include <sim/drawn_workload.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <variant>

namespace cohort::bench::drawn_workload_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a seed that results name draws what it drew then") {
  // From docs/results/policy_bars.md.
  CHECK(draw_workload(3001).name == "3001: 8 models (a100), 33 devices, SLO x 1, uniform");
  CHECK(draw_workload(3003).name == "3003: 6 models (1080ti), 3 devices, SLO x 1, Poisson, Zipf");
  CHECK(draw_workload(3009).name == "3009: 31 models (a100), 4 devices, SLO x 2, gamma 0.25");
}

TEST_CASE("wide draws stay in their ranges, and reach the ends of them") {
  double largest_ratio = 0;
  double smallest_share = 1;
  std::size_t most_models = 0;
  std::uint32_t most_devices = 0;
  std::array<int, noise_classes> noise{};
  std::array<int, 3> arrivals{};
  int zipf = 0;
  constexpr int count = 2000;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    CAPTURE(seed);
    const wide_workload x = draw_wide_workload(seed);
    const sim::workload& w = x.workload;
    REQUIRE(w.devices >= 1);
    REQUIRE(w.devices <= 64);
    REQUIRE(!w.models.empty());
    REQUIRE(w.models.size() <= 40);
    std::set<std::string> names;
    for (const sim::model_spec& m : w.models) {
      names.insert(m.name);
      const auto& line = std::get<linear_latency>(m.latency);
      REQUIRE(line.per_request >= 50us);  // The zoos' least is 54 µs, DenseNet121's.
      REQUIRE(m.latency_of(1) <= 69ms);   // Their most: EfficientNetV2L on a 1080Ti.
      REQUIRE(m.slo >= std::max<duration>(20ms, m.latency_of(1)));
      if (m.name.starts_with("affine")) {
        const double ratio = to_ms(line.fixed) / to_ms(line.per_request);
        largest_ratio = std::max(largest_ratio, ratio);
        REQUIRE(ratio <= 205);  // 200, but for times rounded to a microsecond.
        REQUIRE(m.latency_of(1) >= 1999us);
        REQUIRE(m.latency_of(1) <= 30001us);
        // 2 ℓ(4), rounded down, or 20 ms, times 1 to 2.
        const double rule = std::max(20.0, std::floor(2 * to_ms(m.latency_of(4)) + 1e-9));
        REQUIRE(to_ms(m.slo) >= rule - 1e-6);
        REQUIRE(to_ms(m.slo) <= 2 * rule + 1e-6);
      }
    }
    REQUIRE(names.size() == w.models.size());
    if (w.arrivals == sim::arrival_process::gamma) {
      REQUIRE(w.shape <= 1 / (1.2 * 1.2) + 1e-9);
      REQUIRE(w.shape >= 1 / 16.0);
    }
    w.reality.validate();
    REQUIRE(w.reality.is_ideal() == (x.noise == noise_class::clean));
    ++noise.at(static_cast<std::size_t>(x.noise));
    ++arrivals.at(static_cast<std::size_t>(w.arrivals));
    zipf += w.shares == sim::popularity::zipf ? 1 : 0;
    most_models = std::max(most_models, w.models.size());
    most_devices = std::max(most_devices, w.devices);
    smallest_share = std::min(smallest_share, std::ranges::min(w.normalised_shares()));
  }
  CHECK(largest_ratio > 190);
  CHECK(most_models == 40);
  CHECK(most_devices == 64);
  CHECK(smallest_share > 1.0 / 140);
  const auto about = [&](int n, double part) {
    CHECK(n == doctest::Approx(count * part).epsilon(0.15));
  };
  about(noise[0], 1.0 / 2);
  for (std::size_t i = 1; i < noise_classes; ++i) about(noise.at(i), 1.0 / 6);
  about(arrivals[0], 1.0 / 2);
  about(arrivals[1], 1.0 / 4);
  about(arrivals[2], 1.0 / 4);
  about(zipf, 1.0 / 3);
}

TEST_CASE("a seed of a wide draw decides all of it, and another draws another") {
  std::set<std::string> names;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    const wide_workload a = draw_wide_workload(seed);
    const wide_workload b = draw_wide_workload(seed);
    CHECK(a.name == b.name);
    REQUIRE(a.workload.models.size() == b.workload.models.size());
    for (std::size_t i = 0; i < a.workload.models.size(); ++i) {
      CHECK(a.workload.models[i].name == b.workload.models[i].name);
      CHECK(a.workload.models[i].slo == b.workload.models[i].slo);
      CHECK(a.workload.models[i].latency_of(3) == b.workload.models[i].latency_of(3));
    }
    names.insert(a.name);
  }
  CHECK(names.size() > 95);
}

TEST_CASE("each noise class says what it is") {
  CHECK(name_of(noise_class::clean) == "clean");
  CHECK(name_of(noise_class::slight) == "sigma .05");
  CHECK(name_of(noise_class::biased) == "sigma .1, bias 1.2, stragglers");
  CHECK(name_of(noise_class::wide) == "sigma .2");
}

}  // namespace
}  // namespace cohort::bench::drawn_workload_test
