// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much slower a batch runs because of what runs on other partitions of its device.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/packing/model/profile.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::packing {

/// What a batch on a partition uses of the device, as parts of 1.
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

/// One measurement of two batches side by side: what each uses, and how many times longer the
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
  /// How well the model predicts samples that it was not fitted to; all 0 without samples.
  [[nodiscard]] interference_error error_on(std::span<const interference_sample> held_out) const;
};

inline interference_model interference_model::fit(std::span<const interference_sample> samples) {
  constexpr std::size_t n = 5;
  expects(samples.size() >= n, "interference_model: fit needs at least five samples");
  // Normal equations with the right-hand side as last column, by Gauss-Jordan elimination.
  std::array<std::array<double, n + 1>, n> a{};
  for (const interference_sample& s : samples) {
    expects(s.factor > 0 && std::isfinite(s.factor),
            "interference_model: a measured factor must be above 0");
    const std::array<double, n> x{s.self.l2, s.other.l2, s.self.memory, s.other.memory, 1.0};
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] += x[i] * x[j];
      a[i][n] += x[i] * s.factor;
    }
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

inline interference_error interference_model::error_on(
    std::span<const interference_sample> held_out) const {
  if (held_out.empty()) return {};
  std::vector<double> errors;
  errors.reserve(held_out.size());
  for (const interference_sample& s : held_out) {
    errors.push_back(std::abs(factor(s.self, s.other) - s.factor) / s.factor);
  }
  std::ranges::sort(errors);
  const auto at = [&errors](double part) {  // Nearest rank.
    const double rank = std::ceil(part * static_cast<double>(errors.size()));
    return errors[static_cast<std::size_t>(rank) - 1];
  };
  return {.p50 = at(0.5), .p90 = at(0.9), .p95 = at(0.95)};
}

/// The largest factor that any neighbours could inflict: up to `max_gpulets` − 1 of them, of the
/// given sizes that fit beside the partition, running any measured batch of any of the models. A
/// plan made with it cannot be broken by what is placed beside it later. Thread safety: immutable.
class worst_neighbours {
 public:
  worst_neighbours(const interference_model& c, std::span<const model_profile> models,
                   std::span<const std::uint32_t> sizes, std::uint32_t max_gpulets)
      : model_{c}, sizes_{sizes.begin(), sizes.end()}, max_gpulets_{max_gpulets} {
    bool any = false;
    for (const model_profile& m : models) {
      for (const usage_sample& s : m.usage) {
        const double part = c.l2_other * s.l2 + c.memory_other * s.memory;
        worst_ = any ? std::max(worst_, part) : part;
        any = true;
      }
    }
  }

  /// For a batch that uses `self` on `size_pct` of the device; 1 on all of it.
  /// Complexity: O(sizes · max_gpulets · 100).
  [[nodiscard]] double factor(device_usage self, std::uint32_t size_pct) const {
    const std::uint32_t room = size_pct < 100 ? 100 - size_pct : 0;
    const double own = model_.l2_self * self.l2 + model_.memory_self * self.memory;
    // most[k]: largest sum of excesses of neighbours whose sizes sum to at most k.
    std::vector<double> most(room + 1, 0.0);
    for (std::uint32_t n = 1; n < max_gpulets_; ++n) {
      std::vector<double> next = most;
      for (const std::uint32_t p : sizes_) {
        const double excess = own + p / 100.0 * worst_ + model_.constant - 1;
        for (std::uint32_t k = p; k <= room && excess > 0; ++k) {
          next[k] = std::max(next[k], most[k - p] + excess);
        }
      }
      if (next == most) break;
      most.swap(next);
    }
    return 1 + most[room];
  }

 private:
  interference_model model_;
  std::vector<std::uint32_t> sizes_;
  std::uint32_t max_gpulets_;
  double worst_ = 0;  // Largest part of the factor that a neighbour on a whole device adds.
};

}  // namespace cohort::packing
