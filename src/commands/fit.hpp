// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fitting ℓ(b) = β + α b to measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace cohort::commands {

/// One measurement.
struct fit_point {
  std::uint32_t batch;
  double ms;  ///< Above 0.
};

struct linear_fit {
  double alpha_ms = 0;  ///< At least 0.
  double beta_ms = 0;   ///< At least 0.
  double error = 0;     ///< Largest |fit − measured| / measured.
};

/// The line with the smallest sum of squared relative errors, among those with α and β at least 0.
/// At least one point; with one, β is 0.
[[nodiscard]] inline linear_fit fit_line(std::span<const fit_point> points) noexcept {
  // Weights 1/ms²: a relative error counts the same at batch 1 and at batch 64.
  double w = 0;
  double wx = 0;
  double wy = 0;
  double wxx = 0;
  double wxy = 0;
  for (const fit_point& p : points) {
    const double weight = 1 / (p.ms * p.ms);
    w += weight;
    wx += weight * p.batch;
    wy += weight * p.ms;
    wxx += weight * p.batch * p.batch;
    wxy += weight * p.batch * p.ms;
  }
  const double determinant = w * wxx - wx * wx;
  linear_fit f{.alpha_ms = wxy / wxx};  // Through the origin.
  if (determinant > 1e-12 * w * wxx) {
    const double alpha = (w * wxy - wx * wy) / determinant;
    const double beta = (wxx * wy - wx * wxy) / determinant;
    if (alpha < 0) {
      f.alpha_ms = 0;
      f.beta_ms = wy / w;
    } else if (beta >= 0) {
      f.alpha_ms = alpha;
      f.beta_ms = beta;
    }
  }
  for (const fit_point& p : points) {
    f.error = std::max(f.error, std::abs(f.beta_ms + f.alpha_ms * p.batch - p.ms) / p.ms);
  }
  return f;
}

}  // namespace cohort::commands
