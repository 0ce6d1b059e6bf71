// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/noise_fit.hpp>

#include <doctest/doctest.h>

#include <cohort/core/noise_source.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>

namespace cohort::noise_fit_test {
namespace {
using namespace std::chrono_literals;

/// What an estimator makes of so many batches under these options.
noise_options fitted(const noise_options& o, std::uint64_t seed, int batches) {
  noise_source source{o, seed};
  latency_estimator learned;
  for (int i = 0; i < batches; ++i) learned.add(1, source.draw(model_id{0}, time_point{}));
  return fit_noise(learned);
}

TEST_CASE("of few batches nothing is said") {
  CHECK(fitted({.sigma = 0.3, .bias = 1.5}, 1, 20).is_none());
}

TEST_CASE("batches that take what their profile says have no noise") {
  const noise_options n = fitted({}, 1, 2000);
  CHECK(n.bias == doctest::Approx(1));
  CHECK(n.sigma == doctest::Approx(0));
  CHECK(n.straggler_share == 0);
}

TEST_CASE("lognormal factors and their stragglers are told apart") {
  // Of the last thousand batches: a spread is known to 1 / sqrt(2000), so few stragglers hardly.
  for (const double sigma : {0.05, 0.1, 0.2}) {
    double share = 0;
    double factor = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed);
      const noise_options n =
          fitted({.sigma = sigma, .bias = 1.2, .straggler_share = 0.01, .straggler_factor = 5},
                 seed, 4000);
      CHECK(n.bias == doctest::Approx(1.2).epsilon(0.03));
      CHECK(n.sigma == doctest::Approx(sigma).epsilon(0.15));
      share += n.straggler_share / 20;
      factor += n.straggler_factor / 20;
    }
    CHECK(share == doctest::Approx(0.01).epsilon(0.25));
    CHECK(factor == doctest::Approx(5).epsilon(0.15));
  }
}

TEST_CASE("lateness is an exponential, and a tail where there is one") {
  lateness_source source{{.mean = 60us, .tail = 3ms, .tail_share = 0.05}, 1};
  quantile_sketch late{{.lowest = 1e3, .highest = 1e10}, 4096};
  for (int i = 0; i < 20'000; ++i) late.add(static_cast<double>(source.draw().count()));
  const lateness_options o = fit_lateness(late);
  CHECK(to_ms(o.mean) == doctest::Approx(0.06).epsilon(0.15));
  CHECK(to_ms(o.tail) == doctest::Approx(3).epsilon(0.1));
  CHECK(o.tail_share == doctest::Approx(0.05).epsilon(0.2));
  CHECK(fit_lateness(quantile_sketch{}).is_none());
}

}  // namespace
}  // namespace cohort::noise_fit_test
