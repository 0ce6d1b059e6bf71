// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a batch runs: the `latency_model` concept, its models, and the table that hot paths
/// use.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort {

/// ℓ(b): how long a batch of b ≥ 1 requests runs on its device. Semantics: pure, positive and
/// non-decreasing in b. Models: `linear_latency`, `table_latency`, `latency_curve`.
template <class L>
concept latency_model = std::copy_constructible<L> && requires(const L& l, std::uint32_t batch) {
  { l(batch) } noexcept -> std::same_as<duration>;
};

/// ℓ(b) = fixed + per_request · b: the papers' β + α b. Both at least 0 and not both 0.
struct linear_latency {
  duration fixed;
  duration per_request;

  [[nodiscard]] constexpr duration operator()(std::uint32_t batch) const noexcept {
    return fixed + per_request * static_cast<std::int64_t>(batch);
  }
};
static_assert(latency_model<linear_latency>);

/// One measured point of a profile.
struct latency_point {
  std::uint32_t batch;  ///< At least 1.
  duration latency;     ///< Above 0.
};

/// How to determine the latency of a batch size between two measured ones.
enum class between_sizes : std::uint8_t {
  step,  ///< As the next larger size: the batch is padded, or run by code compiled for that size.
  line,  ///< On the line between both.
};

/// Measured latencies, interpolated between the points. Measurements that fall as the batch grows
/// are noise and are raised to the largest before them (monotone repair). Below the first point the
/// first latency holds; beyond the last, the slope of the last segment goes on, and with a single
/// point the latency grows in proportion: a gain from batching that was not measured is not
/// assumed. Complexity: O(log points). Thread safety: immutable.
class table_latency {
 public:
  /// @param points In any order; batch sizes distinct.
  /// @throws config_error If there is no point, a batch is 0 or repeated, or a latency is not
  ///         above 0.
  explicit table_latency(std::vector<latency_point> points,
                         between_sizes between = between_sizes::line)
      : points_{std::move(points)}, between_{between} {
    expects(!points_.empty(), "table_latency: points must not be empty");
    std::ranges::sort(points_, {}, &latency_point::batch);
    duration highest{0};
    std::uint32_t previous = 0;
    for (latency_point& p : points_) {
      expects(p.batch > previous, "table_latency: batch must be at least 1 and not repeated");
      expects(p.latency > duration{0}, "table_latency: latency must be above 0");
      highest = std::max(highest, p.latency);
      p.latency = highest;
      previous = p.batch;
    }
  }

  [[nodiscard]] duration operator()(std::uint32_t batch) const noexcept {
    const auto above = std::ranges::lower_bound(points_, batch, {}, &latency_point::batch);
    if (above == points_.begin()) return points_.front().latency;
    if (above == points_.end()) {
      if (points_.size() == 1) {
        const latency_point& only = points_.front();
        return rounded(static_cast<double>(only.latency.count()) / only.batch * batch);
      }
      return on_line(points_[points_.size() - 2], points_.back(), batch);
    }
    if (between_ == between_sizes::step) return above->latency;
    return on_line(*(above - 1), *above, batch);
  }

  /// The repaired points, by batch.
  [[nodiscard]] std::span<const latency_point> points() const noexcept { return points_; }
  [[nodiscard]] between_sizes between() const noexcept { return between_; }

 private:
  static duration on_line(const latency_point& a, const latency_point& b,
                          std::uint32_t batch) noexcept {
    const double slope = static_cast<double>((b.latency - a.latency).count()) / (b.batch - a.batch);
    const double rise = slope * (static_cast<double>(batch) - a.batch);
    return std::min(a.latency + rounded(rise), unbounded);
  }

  /// `ns` ≥ 0 to the nearest nanosecond. Far beyond the last point it may not fit: saturates.
  static duration rounded(double ns) noexcept {
    if (ns >= static_cast<double>(unbounded.count())) return unbounded;
    return duration{std::llround(ns)};
  }

  std::vector<latency_point> points_;
  between_sizes between_;
};
static_assert(latency_model<table_latency>);

/// ℓ(b, p): a table for each of a few partition sizes, linear between sizes. Outside the measured
/// sizes the nearest one holds. Source: gpu-let, section 3 (latency by batch and partition).
class partitioned_latency {
 public:
  /// @throws config_error If there is no entry or a share is repeated.
  explicit partitioned_latency(std::vector<std::pair<device_share, table_latency>> by_share)
      : by_share_{std::move(by_share)} {
    expects(!by_share_.empty(), "partitioned_latency: by_share must not be empty");
    std::ranges::sort(by_share_, {}, [](const auto& e) { return e.first; });
    expects(std::ranges::adjacent_find(by_share_, {}, [](const auto& e) { return e.first; }) ==
                by_share_.end(),
            "partitioned_latency: a share must not be repeated");
  }

  [[nodiscard]] duration operator()(std::uint32_t batch, device_share share) const noexcept {
    const auto above =
        std::ranges::lower_bound(by_share_, share, {}, [](const auto& e) { return e.first; });
    if (above == by_share_.begin()) return above->second(batch);
    const auto below = above - 1;
    if (above == by_share_.end()) return below->second(batch);
    const double width = above->first.percent() - below->first.percent();
    const double part = (share.percent() - below->first.percent()) / width;
    const duration low = below->second(batch);
    const duration high = above->second(batch);
    return low +
           duration{static_cast<std::int64_t>(part * static_cast<double>((high - low).count()))};
  }

 private:
  std::vector<std::pair<device_share, table_latency>> by_share_;
};

/// ℓ tabulated for 1 to max_batch, made non-decreasing, for look-ups by schedulers. `operator()` is
/// O(1), `largest_within` O(log max_batch). Memory: 8 bytes a batch size. Thread safety: immutable.
class latency_curve {
 public:
  /// @throws config_error If `max_batch` is 0 or ℓ(1) is not above 0.
  template <latency_model Latency>
  latency_curve(const Latency& latency, std::uint32_t max_batch) : max_batch_{max_batch} {
    expects(max_batch > 0, "latency_curve: max_batch must be at least 1");
    table_.reserve(std::size_t{max_batch} + 1);
    duration highest{0};
    for (std::uint32_t b = 1; b <= max_batch; ++b) {
      highest = std::max(highest, latency(b));
      table_.push_back(highest);
    }
    expects(table_.front() > duration{0}, "latency_curve: latency of batch 1 must be above 0");
    table_.push_back(unbounded);
  }

  [[nodiscard]] std::uint32_t max_batch() const noexcept { return max_batch_; }
  /// ℓ(batch); above max_batch, `unbounded`: such a batch can never run. `batch` must not be 0.
  [[nodiscard]] duration operator()(std::uint32_t batch) const noexcept {
    return batch <= max_batch_ ? table_[batch - 1] : unbounded;
  }
  /// The same without the range check, for a batch of at most max_batch + 1. For hot loops.
  [[nodiscard]] duration at(std::uint32_t batch) const noexcept { return table_[batch - 1]; }
  /// The curve of ℓ(b) + fixed + per_request · b.
  [[nodiscard]] latency_curve plus(duration fixed, duration per_request) const {
    latency_curve sum = *this;
    for (std::uint32_t b = 1; b <= max_batch(); ++b) {
      sum.table_[b - 1] += fixed + per_request * static_cast<std::int64_t>(b);
    }
    return sum;
  }
  /// The curve of n · ℓ(b), at most `unbounded`. `n` must not be 0.
  [[nodiscard]] latency_curve times(std::uint32_t n) const {
    latency_curve product = *this;
    for (duration& l : product.table_) l = l > unbounded / n ? unbounded : l * n;
    return product;
  }
  /// Becomes ℓ(b) · factor(b) + fixed + per_request · b, made non-decreasing and at most
  /// `unbounded`, where ℓ is `base`, a curve with the same number of sizes. `factor` is above 0.
  /// Allocates nothing.
  template <class Factor>
  void follow(const latency_curve& base, duration fixed, duration per_request, Factor&& factor) {
    duration highest{0};
    for (std::uint32_t b = 1; b <= max_batch(); ++b) {
      const double ns = static_cast<double>(base.table_[b - 1].count()) * factor(b);
      const duration l =
          ns >= static_cast<double>(unbounded.count()) ? unbounded : duration{std::llround(ns)};
      highest = std::min(unbounded, std::max(highest, l + fixed + per_request * std::int64_t{b}));
      table_[b - 1] = highest;
    }
  }
  /// The largest batch with ℓ(b) ≤ budget, or 0.
  [[nodiscard]] std::uint32_t largest_within(duration budget) const noexcept {
    const auto sizes = std::span{table_}.first(max_batch_);
    return static_cast<std::uint32_t>(std::ranges::upper_bound(sizes, budget) - sizes.begin());
  }

 private:
  std::uint32_t max_batch_;      // Stored, since computing it from the table costs time.
  std::vector<duration> table_;  // Followed by `unbounded`.
};
static_assert(latency_model<latency_curve>);

}  // namespace cohort
