// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fits the options of `reality` to measurements: `fit_noise`, `fit_lateness`.
#pragma once

#include <cohort/core/latency_estimator.hpp>
#include <cohort/core/quantile_sketch.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace cohort {

namespace detail {
/// The mean of `of(quantile(q))` over the parts `from` to `to` of a distribution.
template <class Quantile, class Of>
[[nodiscard]] double mean_over(const Quantile& quantile, double from, double to, const Of& of) {
  constexpr int steps = 200;
  double sum = 0;
  for (int i = 0; i < steps; ++i) sum += of(quantile(from + (to - from) * (i + 0.5) / steps));
  return sum / steps;
}
/// The part of a distribution that does not exceed a value.
template <class Quantile>
[[nodiscard]] double part_below(const Quantile& quantile, double x) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (quantile(middle) <= x ? low : high) = middle;
  }
  return high;
}
}  // namespace detail

/// Fits a lognormal factor and stragglers to the batches of a model, all sizes together. A
/// straggler took more than 1.5 times the median and is more than four spreads of the lognormal
/// factor above it. `bias` is the mean of the others. Returns no noise if fewer than `least`
/// batches were measured since the level last shifted. Cost: 100,000 steps over bins.
[[nodiscard]] inline noise_options fit_noise(const latency_estimator& learned,
                                             std::uint64_t least = 32) {
  noise_options n;
  if (learned.count() < least) return n;
  const auto quantile = [&](double q) { return learned.seen(q); };
  const double median = quantile(0.5);
  // These quantiles of a normal distribution are one spread away from its middle.
  const double roughly = std::log(quantile(0.841) / quantile(0.159)) / 2;
  const double bound = median * std::max(1.5, std::exp(4 * roughly));
  const double usual = detail::part_below(quantile, bound);
  const auto same = [](double x) { return x; };
  const auto log = [](double x) { return std::log(x); };
  const double middle = detail::mean_over(quantile, 0, usual, log);
  const double variance = detail::mean_over(quantile, 0, usual, [&](double x) {
    return (std::log(x) - middle) * (std::log(x) - middle);
  });
  n.bias = detail::mean_over(quantile, 0, usual, same);
  n.sigma = std::min(3.0, std::sqrt(variance));
  if (usual < 1) {
    n.straggler_share = 1 - usual;
    n.straggler_factor =
        std::clamp(detail::mean_over(quantile, usual, 1, same) / n.bias, 1.0, 1000.0);
  }
  return n;
}

/// Fits an exponential and a tail to the lateness of timers, in nanoseconds. The tail is whatever
/// exceeds seven times the mean that follows from the median. Returns no lateness if fewer than
/// `least` values were measured.
[[nodiscard]] inline lateness_options fit_lateness(const quantile_sketch& late,
                                                   std::uint64_t least = 32) {
  lateness_options o;
  if (late.count() < least) return o;
  const auto quantile = [&](double q) { return late.quantile(q); };
  const double mean = quantile(0.5) / std::numbers::ln2;
  o.mean = duration{std::llround(mean)};
  const double usual = detail::part_below(quantile, 7 * mean);
  if (usual >= 1) return o;
  const double tail = detail::mean_over(quantile, usual, 1, [](double x) { return x; });
  o.tail = duration{std::llround(std::max(0.0, tail - mean))};
  o.tail_share = 1 - usual;
  return o;
}

}  // namespace cohort
