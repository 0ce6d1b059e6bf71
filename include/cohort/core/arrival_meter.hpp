// SPDX-License-Identifier: Apache-2.0
/// @file
/// The load of the last minutes: `arrival_meter`.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace cohort {

/// Counts arrivals second by second, with the moments of their gaps, for the last two minutes:
/// `rate_tracker` serves immediate decisions, this serves questions about the load in general.
/// Cost: `add` O(1) but for seconds that have passed; `measure` O(seconds kept). Memory: 3 KB, no
/// allocation. Thread safety: none.
class arrival_meter {
 public:
  static constexpr std::size_t kept = 128;  ///< Seconds, the present one included.

  /// The recent load.
  struct load {
    double rate = 0;         ///< Arrivals a second.
    double variability = 1;  ///< Squared coefficient of variation of the gaps; 1 if not known.
    duration over{0};        ///< Time span of the measurement; 0 if there is none.
    std::uint64_t gaps = 0;  ///< Number of gaps that the variability is based on.
  };

  /// Counts requests that arrived at one instant. Instants must not decrease.
  void add(time_point now, std::uint32_t requests = 1) noexcept {
    advance(now);
    second& s = seconds_[index(present_)];
    s.count += requests;
    const double gap = last_ == distant_past ? HUGE_VAL : to_seconds(now - last_);
    last_ = now;
    if (gap > 1 && gap > 20 * typical_) return;  // A pause: no gap of this load.
    s.gaps += requests;                          // All but the first of them follow at once.
    s.sum += gap;
    s.squares += gap * gap;
    typical_ += (gap - typical_) / 32;
  }

  /// Measures whole seconds up to now, as far back as the load was the same. The measurement stops
  /// at a block of five seconds if its count differs from the later ones by more than chance, or by
  /// more than a quarter where chance is small. A change within the last five seconds is averaged
  /// over them. A load that has ended is reported as it was before its last second, while that is
  /// kept. All fields are 0 until a whole second has passed.
  [[nodiscard]] load measure(time_point now) noexcept {
    advance(now);
    const load l = measure_before(present_);
    return l.rate > 0 || last_ == distant_past ? l : measure_before(second_of(last_));
  }

 private:
  struct second {
    std::uint32_t count = 0;
    std::uint32_t gaps = 0;
    double sum = 0;  // Of gaps, in seconds.
    double squares = 0;

    second& operator+=(const second& other) noexcept {
      count += other.count;
      gaps += other.gaps;
      sum += other.sum;
      squares += other.squares;
      return *this;
    }
    [[nodiscard]] double variability() const noexcept {
      const double mean = sum / gaps;
      return std::max(0.0, squares / gaps / (mean * mean) - 1);
    }
  };

  static std::int64_t second_of(time_point t) noexcept {
    return t.time_since_epoch() / std::chrono::seconds{1};
  }
  static std::size_t index(std::int64_t s) noexcept { return static_cast<std::size_t>(s) % kept; }

  /// Over seconds before `end`, which is at most the present one.
  [[nodiscard]] load measure_before(std::int64_t end) const noexcept {
    // Of the first second the meter may have missed a part; of the oldest some are overwritten.
    const std::int64_t oldest =
        std::max(first_ + 1, present_ - static_cast<std::int64_t>(kept) + 1);
    second all{};
    std::int64_t used = 0;
    while (used < end - oldest) {
      second block{};
      const std::int64_t length = std::min<std::int64_t>(5, end - oldest - used);
      for (std::int64_t i = 1; i <= length; ++i) block += seconds_[index(end - used - i)];
      if (used > 0 && !is_alike(all, used, block, length)) break;
      all += block;
      used += length;
    }
    if (used == 0 || all.count == 0) return {};
    load l{.rate = static_cast<double>(all.count) / static_cast<double>(used),
           .over = std::chrono::seconds{used},
           .gaps = all.gaps};
    if (all.gaps >= 32 && all.sum > 0) l.variability = all.variability();
    return l;
  }

  /// The variance of a count is its mean times the variability of the gaps, in the long run.
  static bool is_alike(const second& later, std::int64_t later_s, const second& block,
                       std::int64_t s) noexcept {
    const double expected =
        static_cast<double>(later.count) * static_cast<double>(s) / static_cast<double>(later_s);
    const double off = std::abs(block.count - expected);
    const double variance = expected * (later.gaps >= 32 ? std::max(1.0, later.variability()) : 1);
    const double chance =
        4 * std::sqrt((variance + 1) * (1 + static_cast<double>(s) / static_cast<double>(later_s)));
    return off <= std::max(chance, 0.25 * expected);
  }

  void advance(time_point now) noexcept {
    const std::int64_t s = second_of(now);
    if (first_ == none) first_ = present_ = s;
    if (s - present_ >= static_cast<std::int64_t>(kept)) {
      seconds_.fill({});
      present_ = s;
    }
    while (present_ < s) seconds_[index(++present_)] = {};
  }

  static constexpr std::int64_t none = INT64_MIN;

  std::array<second, kept> seconds_{};
  std::int64_t first_ = none;  // The second of the first call; only a part of it was seen.
  std::int64_t present_ = none;
  time_point last_ = distant_past;
  double typical_ = 1;  // A typical recent gap, in seconds.
};

}  // namespace cohort
