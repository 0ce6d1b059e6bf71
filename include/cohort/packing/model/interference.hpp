// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much batches on other partitions of a device slow a batch down.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/packing/model/profile.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing {

/// A batch's use of the device on its partition, as fractions.
struct device_usage {
  double l2 = 0;
  double memory = 0;
};

/// Usage of `m` at a batch and size: measured on the whole device, linear between batches, held
/// outside of them, and in proportion to the size. Zero if nothing was measured.
[[nodiscard]] inline device_usage usage_of(const model_profile& m, std::uint32_t batch,
                                           std::uint32_t size_pct) noexcept {
  const usage_sample* below = nullptr;
  const usage_sample* above = nullptr;
  for (const usage_sample& s : m.usage) {
    if (s.batch <= batch && (below == nullptr || s.batch > below->batch)) below = &s;
    if (s.batch >= batch && (above == nullptr || s.batch < above->batch)) above = &s;
  }
  if (below == nullptr) below = above;
  if (above == nullptr) above = below;
  if (below == nullptr) return {};
  double part = 0;
  if (above->batch > below->batch) {
    part = static_cast<double>(batch - below->batch) / (above->batch - below->batch);
  }
  const double share = size_pct / 100.0;
  return {.l2 = share * (below->l2 + part * (above->l2 - below->l2)),
          .memory = share * (below->memory + part * (above->memory - below->memory))};
}

/// One measurement of two batches side by side: the usage of each, and how many times longer the
/// first one ran than alone.
struct interference_sample {
  device_usage self;
  device_usage other;
  double factor = 1;  ///< Above 0.
};

/// Relative error of predictions, |predicted − measured| / measured, at percentiles.
struct interference_error {
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
};

/// The percentiles of relative errors, by nearest rank; all 0 without any.
[[nodiscard]] inline interference_error percentiles_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  const auto at = [&errors](double part) {
    const double rank = std::ceil(part * static_cast<double>(errors.size()));
    return errors[static_cast<std::size_t>(rank) - 1];
  };
  return {.p50 = at(0.5), .p90 = at(0.9), .p95 = at(0.95)};
}

/// f = max(1, c · (l2 self, l2 other, memory self, memory other, 1)): the factor by which latency
/// grows next to one neighbour. With several neighbours the excesses f − 1 add. Source: gpu-let,
/// section 4.4. Thread safety: immutable.
struct interference_model {
  double l2_self = 0;
  double l2_other = 0;
  double memory_self = 0;
  double memory_other = 0;
  double constant = 1;

  [[nodiscard]] double factor(device_usage self, device_usage other) const noexcept {
    return std::max(1.0, l2_self * self.l2 + l2_other * other.l2 + memory_self * self.memory +
                             memory_other * other.memory + constant);
  }
  [[nodiscard]] double factor(device_usage self,
                              std::span<const device_usage> others) const noexcept {
    double f = 1;
    for (const device_usage& o : others) f += factor(self, o) - 1;
    return f;
  }

  /// The least-squares fit to measured pairs. @throws config_error If there are fewer than five
  /// samples, or they do not determine the five coefficients.
  [[nodiscard]] static interference_model fit(std::span<const interference_sample> samples);
  /// Like `fit`, but a usage may be equal in all samples, as memory usage is if every model fits
  /// the cache: its coefficient is then 0, and the constant includes its effect. @throws
  /// config_error If the samples are too few, or do not determine the remaining coefficients.
  [[nodiscard]] static interference_model fit_what_varies(
      std::span<const interference_sample> samples);
  /// How well the model predicts samples that it was not fitted to; all 0 without samples.
  [[nodiscard]] interference_error error_on(std::span<const interference_sample> held_out) const;
};

namespace detail {
/// The factors of the coefficients, the constant last.
[[nodiscard]] inline std::array<double, 5> terms_of(const interference_sample& s) noexcept {
  return {s.self.l2, s.other.l2, s.self.memory, s.other.memory, 1.0};
}

/// Least squares over the terms that are `used`; the coefficients of the others are 0.
[[nodiscard]] inline interference_model fit_terms(std::span<const interference_sample> samples,
                                                  const std::array<bool, 5>& used) {
  constexpr std::size_t n = 5;
  // Normal equations with the right-hand side as last column, by Gauss-Jordan elimination.
  std::array<std::array<double, n + 1>, n> a{};
  for (const interference_sample& s : samples) {
    expects(s.factor > 0 && std::isfinite(s.factor),
            "interference_model: a measured factor must be above 0");
    const std::array<double, n> x = terms_of(s);
    for (std::size_t i = 0; i < n; ++i) {
      if (!used[i]) continue;
      for (std::size_t j = 0; j < n; ++j) a[i][j] += used[j] ? x[i] * x[j] : 0;
      a[i][n] += x[i] * s.factor;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!used[i]) a[i][i] = 1;
  }
  std::array<double, n> scale{};
  for (std::size_t i = 0; i < n; ++i) scale[i] = a[i][i];
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t i = column + 1; i < n; ++i) {
      if (std::abs(a[i][column]) > std::abs(a[pivot][column])) pivot = i;
    }
    std::swap(a[pivot], a[column]);
    expects(std::abs(a[column][column]) > 1e-12 * scale[column] && scale[column] > 0,
            "interference_model: the samples must vary in every usage on its own");
    for (std::size_t i = 0; i < n; ++i) {
      if (i == column) continue;
      const double times = a[i][column] / a[column][column];
      for (std::size_t j = column; j <= n; ++j) a[i][j] -= times * a[column][j];
    }
  }
  const auto c = [&a](std::size_t i) { return a[i][n] / a[i][i]; };
  return {.l2_self = c(0),
          .l2_other = c(1),
          .memory_self = c(2),
          .memory_other = c(3),
          .constant = c(4)};
}
}  // namespace detail

inline interference_model interference_model::fit(std::span<const interference_sample> samples) {
  expects(samples.size() >= 5, "interference_model: fit needs at least five samples");
  return detail::fit_terms(samples, {true, true, true, true, true});
}

inline interference_model interference_model::fit_what_varies(
    std::span<const interference_sample> samples) {
  std::array<bool, 5> used{false, false, false, false, true};
  for (const interference_sample& s : samples) {
    for (std::size_t i = 0; i < 4; ++i) {
      if (detail::terms_of(s)[i] != detail::terms_of(samples.front())[i]) used[i] = true;
    }
  }
  expects(static_cast<std::ptrdiff_t>(samples.size()) >= std::ranges::count(used, true),
          "interference_model: fit needs as many samples as coefficients");
  return detail::fit_terms(samples, used);
}

/// Factor by which a batch of `self` on a partition takes longer next to one of `other`, which has
/// index `number` in the model list of `self`: by usage if both have it, else as measured side by
/// side (`model_profile::beside`); 1 if neither is known.
[[nodiscard]] inline double factor_between(const interference_model& c, const model_profile& self,
                                           device_usage self_usage, const model_profile& other,
                                           std::size_t number, device_usage other_usage) noexcept {
  if (!self.usage.empty() && !other.usage.empty()) return c.factor(self_usage, other_usage);
  return number < self.beside.size() ? self.beside[number] : 1;
}

inline interference_error interference_model::error_on(
    std::span<const interference_sample> held_out) const {
  std::vector<double> errors;
  errors.reserve(held_out.size());
  for (const interference_sample& s : held_out) {
    errors.push_back(std::abs(factor(s.self, s.other) - s.factor) / s.factor);
  }
  return percentiles_of(std::move(errors));
}

}  // namespace cohort::packing
