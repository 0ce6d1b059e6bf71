// SPDX-License-Identifier: Apache-2.0
#include "drawn_staged_model.hpp"
#include "random_draws.hpp"

#include <cohort/core/time.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace cohort::bench {
namespace {

constexpr std::array shape_names{"flat", "affine", "concave", "stepped", "mixed"};

/// Time of a stage for so much work, 1 being that of one average request.
struct latency_curve {
  latency_shape shape;
  double fixed_ms;
  double each_ms;
  double knee;      // Work that is free, or of a step.
  double exponent;  // Of a concave curve.

  [[nodiscard]] double at(double work) const {
    switch (shape) {
      case latency_shape::flat_then_linear:
        return fixed_ms * std::max(1.0, work / knee);
      case latency_shape::affine:
        return fixed_ms + each_ms * work;
      case latency_shape::concave:
        return fixed_ms + each_ms * std::pow(work, exponent);
      case latency_shape::stepped:
        return fixed_ms + each_ms * knee * std::ceil(work / knee);
      case latency_shape::mixed:
        break;
    }
    return 0;
  }
};

latency_curve draw_curve(random_draws& random, latency_shape shape) {
  if (shape == latency_shape::mixed) shape = static_cast<latency_shape>(random.below(4));
  latency_curve c{.shape = shape,
                  .fixed_ms = random.between(0.3, 6),
                  .each_ms = 0,
                  .knee = random.between(2, 48),
                  .exponent = 0.5 + 0.4 * random.unit()};
  c.each_ms = c.fixed_ms / random.between(0.5, 40);
  return c;
}

std::vector<std::uint32_t> draw_grid(random_draws& random, std::uint32_t batch_max,
                                     std::string& name) {
  std::vector<std::uint32_t> grid;
  if (random.below(2) == 0) {
    name = "powers";
    for (std::uint32_t b = 1; b <= batch_max; b *= 2) grid.push_back(b);
  } else {
    name = "dense";
    for (std::uint32_t b = 1; b <= batch_max; ++b) grid.push_back(b);
  }
  return grid;
}

/// Lengths as they are seen: most of a middle length, of all lengths alike, or of two kinds.
std::vector<std::uint32_t> draw_lengths(random_draws& random, std::size_t buckets) {
  const std::size_t kind = random.below(3);
  const double last = static_cast<double>(buckets) - 1;
  std::vector<std::uint32_t> out(30'000);
  for (std::uint32_t& k : out) {
    double x = 0;
    if (kind == 0) x = last * (0.3 + 0.18 * random.normal());
    if (kind == 1) x = last * random.unit();
    if (kind == 2) x = random.below(10) < 8 ? last * 0.2 * random.unit() : last;
    k = static_cast<std::uint32_t>(std::lround(std::clamp(x, 0.0, last)));
  }
  return out;
}

}  // namespace

drawn_staged_model draw_staged_model(std::uint64_t seed) {
  random_draws random{seed};
  // By turns, so that any two hundred in a row hold as many of each.
  const auto shape = static_cast<latency_shape>(seed % 5);
  const bool has_sizes = seed / 5 % 2 == 1;
  drawn_staged_model d;
  d.shape = shape_names[seed % 5];
  d.noise = std::array{0.0, 0.01, 0.03}[random.below(3)];
  formats::staged_model_spec& m = d.spec;
  m.name = fmt::format("draw{}", seed);
  m.batch_max = std::uint32_t{8} << random.below(4);
  const std::vector<std::uint32_t> grid = draw_grid(random, m.batch_max, d.grid);
  const double speed = random.between(0.2, 5);
  if (has_sizes) {
    m.parallel = random.below(2) == 0;
    const std::size_t buckets = 3 + random.below(6);
    const double growth = random.between(1.2, 2);
    for (double n = 16; m.buckets.size() < buckets; n *= growth) {
      m.buckets.push_back(static_cast<std::uint32_t>(n) +
                          static_cast<std::uint32_t>(m.buckets.size()));
    }
    d.lengths = draw_lengths(random, buckets);
    m.input = batching::input_rule::filled;
  } else {
    m.split = batching::split_rule::planned;
    m.stretch = batching::stretch_rule::planned;
  }
  const std::size_t stages = 1 + random.below(5);
  for (std::size_t s = 0; s < stages; ++s) {
    const latency_curve c = draw_curve(random, shape);
    formats::stage_spec stage{.name = fmt::format("s{}", s + 1), .points = {}};
    const double middle = has_sizes ? m.buckets[m.buckets.size() / 2] : 1;
    for (std::uint32_t k = 0; k < std::max<std::size_t>(1, m.buckets.size()); ++k) {
      for (const std::uint32_t b : grid) {
        const double work = b * (has_sizes ? m.buckets[k] / middle : 1);
        const double off = 1 + d.noise * (2 * random.unit() - 1);
        stage.points.push_back({.batch = b,
                                .bucket = k,
                                .time = from_ms(std::max(1e-3, speed * c.at(work) * off)),
                                .share = m.parallel ? std::clamp(work / c.knee, 0.02, 1.0) : 1});
      }
    }
    m.stages.push_back(std::move(stage));
  }
  const batching::stage_profile p = m.profile();
  m.slo = 4 * p.total(p.batch_max(), p.buckets() - 1);
  return d;
}

drawn_staged_model draw_affine_model(std::uint64_t seed) {
  random_draws random{seed ^ 0xaff1e};
  drawn_staged_model d;
  d.shape = "affine";
  d.grid = "dense";
  formats::staged_model_spec& m = d.spec;
  m.name = fmt::format("affine{}", seed);
  m.batch_max = 32;
  m.split = batching::split_rule::planned;
  m.stretch = batching::stretch_rule::planned;
  const double alpha = random.between(0.05, 2);
  const double beta = alpha * random.between(0.5, 40);
  const std::size_t stages = 2 + random.below(5);
  for (std::size_t s = 0; s < stages; ++s) {
    formats::stage_spec stage{.name = fmt::format("s{}", s + 1), .points = {}};
    for (std::uint32_t b = 1; b <= m.batch_max; ++b) {
      stage.points.push_back(
          {.batch = b, .time = from_ms((alpha * b + beta) / static_cast<double>(stages))});
    }
    m.stages.push_back(std::move(stage));
  }
  m.slo = 4 * m.profile().total(m.batch_max);
  return d;
}

}  // namespace cohort::bench
