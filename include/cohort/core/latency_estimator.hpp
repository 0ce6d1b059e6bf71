// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long batches really take, learned from those that ended: `latency_estimator`,
/// `level_tracker`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/quantile_sketch.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cohort {

/// The distribution of the ratio of actual to profiled times for one model's batches. The profile
/// is a prior: before any measurement the ratio is 1, with a relative spread of `spread`. About the
/// last thousand batches count. When their level shifts (a machine slows down, a profile was
/// wrong), the shift is detected within tens of batches and earlier measurements are discarded. If
/// batches of some size differ from the others, they get a level of their own. Cost: `add` O(1) but
/// for O(bins) in each sixteenth call; `factor` O(bins). Allocates when it is made alone. Thread
/// safety: none. Source: none of the papers; they rely on their profiles.
class latency_estimator {
 public:
  /// @param spread Relative spread of the profile; 0 to 1.
  /// @throws config_error If `spread` is outside that range.
  explicit latency_estimator(double spread = 0) {
    expects(spread >= 0 && spread <= 1, "latency_estimator: spread must be in 0 to 1");
    for (const double x : {1 - spread / 2, 1.0, 1 + spread / 2}) sketch_.add(x);
  }

  /// A batch of `size` ≥ 1 took `ratio` times its profile. Ratios that are not above 0 are ignored.
  /// @returns Whether the level has shifted.
  bool add(std::uint32_t size, double ratio) noexcept {
    return ratio > 0 && add_log(size, std::log(ratio));
  }
  /// The same, given the ratio's logarithm.
  bool add_log(std::uint32_t size, double log_ratio) noexcept {
    level& own = sizes_[class_of(size)];
    log_ratio = std::clamp(log_ratio, -log_of_most, log_of_most);
    const double log_rest = log_ratio - own.share();
    ++count_;
    recent_[count_ % recent_.size()] = log_rest;
    const bool shifted = count_ > least && has_shifted((log_rest - log_middle_) / scale_);
    if (shifted) {
      start_anew();
    } else {
      const double off = std::clamp(log_ratio - all_.mean, -0.5, 0.5);  // Bounds stragglers.
      own.follow(off);
      all_.follow(all_.mean + off);
      sketch_.add(std::exp(log_rest));
    }
    if (shifted || count_ <= least || count_ % 16 == 0) measure();
    return shifted;
  }

  /// Batches since the level shifted last, or since the start.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// How often the level has shifted.
  [[nodiscard]] std::uint64_t shifts() const noexcept { return shifts_; }
  /// Mean ratio over all sizes.
  [[nodiscard]] double mean() const noexcept { return sketch_.mean(); }
  /// Median ratio over all sizes, as of the last sixteenth batch.
  [[nodiscard]] double middle() const noexcept { return std::exp(log_middle_); }
  /// Logarithm of the median ratio for batches of a size.
  [[nodiscard]] double log_middle(std::uint32_t size) const noexcept {
    return log_middle_ + sizes_[class_of(size)].share();
  }
  /// Relative spread of the ratios, from their quartiles; at least 2 %.
  [[nodiscard]] double spread() const noexcept { return scale_; }

  /// The q-quantile of the ratio for batches of a size. Few batches do not determine a high
  /// quantile, so q is limited to 1 − 10 / n, with n at least 20.
  [[nodiscard]] double factor(std::uint32_t size, double q) const noexcept {
    return quantile(q) * size_factor(size);
  }
  /// The same over all sizes; `size_factor` is the ratio of batches of a size to that.
  [[nodiscard]] double quantile(double q) const noexcept {
    return sketch_.quantile(std::min(q, known_part(sketch_.count())));
  }
  [[nodiscard]] double size_factor(std::uint32_t size) const noexcept {
    return std::exp(sizes_[class_of(size)].share());
  }
  /// The measured q-quantile, however few batches there were. Used to draw samples.
  [[nodiscard]] double seen(double q) const noexcept { return sketch_.quantile(q); }
  /// The highest quantile that n values determine.
  [[nodiscard]] static double known_part(std::uint64_t n) noexcept {
    return n < 20 ? 0.5 : 1 - 10 / static_cast<double>(n);
  }

 private:
  /// A mean of logarithms: of all ratios, or of the differences of some sizes from that mean.
  struct level {
    double mean = 0;
    double count = 0;

    void follow(double x) noexcept {
      count = std::min(count + 1, 64.0);
      mean += (x - mean) / count;
    }
    /// The mean, shrunk towards 0 while it rests on few batches.
    [[nodiscard]] double share() const noexcept {
      return count < 16 ? 0 : mean * (count - 8) / (count + 8);
    }
  };

  static constexpr std::uint64_t least = 16;      // Batches needed before shifts are detected.
  static constexpr double log_of_most = 4.15888;  // Logarithm of 64, where the sketch ends.

  static std::size_t class_of(std::uint32_t size) noexcept {
    return static_cast<std::size_t>(std::bit_width(std::max(size, 1U))) - 1;
  }

  /// Two cumulative sums of the deviations, in units of the spread. A deviation of up to 0.75 is
  /// free, and each counts for at most 3, so that a straggler does not look like a shift. Source:
  /// Page, 1954.
  bool has_shifted(double off) noexcept {
    off = std::clamp(off, -3.0, 3.0);
    above_ = std::max(0.0, above_ + off - 0.75);
    below_ = std::max(0.0, below_ - off - 0.75);
    return above_ > 12 || below_ > 12;
  }
  /// Restarts from the last values alone, those that made the sum: at least six.
  void start_anew() noexcept {
    sketch_.clear();
    sizes_ = {};
    for (const double x : recent_) sketch_.add(std::exp(x));
    all_ = {.mean = std::log(sketch_.quantile(0.5)), .count = 6};
    count_ = recent_.size();
    above_ = below_ = 0;
    ++shifts_;
  }
  void measure() noexcept {
    log_middle_ = std::log(sketch_.quantile(0.5));
    // The quartiles of a normal distribution are 1.35 of its spread apart.
    scale_ = std::max(0.02, std::log(sketch_.quantile(0.75) / sketch_.quantile(0.25)) / 1.35);
  }

  quantile_sketch sketch_;
  level all_{};
  std::array<level, 32> sizes_{};   // Indexed by the logarithm of the size.
  std::array<double, 6> recent_{};  // Logarithms.
  std::uint64_t count_ = 0;
  std::uint64_t shifts_ = 0;
  double log_middle_ = 0;
  double scale_ = 0.02;
  double above_ = 0;
  double below_ = 0;
};

/// How much longer than usual recent batches took, on one device or on all devices that it is
/// compared with. O(1), no allocation. Thread safety: none.
class level_tracker {
 public:
  /// Adds a batch that took e^`log_ratio` times as long as usual for its model; `spread` is the
  /// relative spread of that model's batches. NaN and infinities are ignored.
  /// @param memory About so many batches count; at least 1.
  void add_log(double log_ratio, double spread, double memory = 16) noexcept {
    if (!std::isfinite(log_ratio)) return;
    // The bound limits the weight of a straggler, but a level that is far off is still reached
    // soon.
    const double most = std::max(1.0, 3 * spread);
    count_ = std::min(count_ + 1, memory);
    mean_ += (std::clamp(log_ratio, -most, most) - mean_) / count_;
    spread_ = spread;
  }
  /// Logarithm of the ratio between the times of this tracker's batches and those of `all`; 0
  /// unless the difference is significant. A change that all devices share is no difference.
  [[nodiscard]] double log_factor(const level_tracker& all) const noexcept {
    const double off = mean_ - all.mean_;
    if (count_ < 4 || std::abs(off) <= 0.05) return 0;
    return std::abs(off) > 4 * spread_ / std::sqrt(2 * count_ - 1) ? off : 0;
  }
  /// The factor itself; 1 unless it is significant.
  [[nodiscard]] double factor(const level_tracker& all) const noexcept {
    const double off = log_factor(all);
    return off == 0 ? 1 : std::exp(off);
  }

 private:
  double mean_ = 0;  // Mean of the logarithms.
  double count_ = 0;
  double spread_ = 0.02;
};

}  // namespace cohort
