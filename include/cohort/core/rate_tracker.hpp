// SPDX-License-Identifier: Apache-2.0
/// @file
/// How fast events arrive, and how irregularly.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cohort {

/// Counts events over a sliding window and measures how much their gaps vary. The window advances
/// in ticks of a sixteenth of its width, so its results change at most once a tick, and values
/// derived from them need not be recomputed in between. O(1) an event. Thread safety: none.
class rate_tracker {
 public:
  static constexpr std::size_t ticks = 16;

  /// @param window Width of the sliding window; at least 16 ns. Wider is steadier, narrower is
  ///               quicker to follow.
  /// @throws config_error If `window` is below 16 ns.
  explicit rate_tracker(duration window) : tick_{window / static_cast<std::int64_t>(ticks)} {
    expects(tick_ > duration{0}, "rate_tracker: window must be at least 16 ns");
  }

  /// Counts one event. An event older than the last one counts as simultaneous with it, since
  /// several threads may report events out of order.
  /// @returns Whether a tick has passed, so that `rate()` may have changed.
  bool add(time_point now) noexcept {
    now = std::max(now, last_);
    const bool ticked = advance(now);
    ++open_.events;
    if (last_ != distant_past) {
      const double gap = static_cast<double>((now - last_).count());
      open_.gap_sum += gap;
      open_.gap_squares += gap * gap;
      ++open_.gaps;
    }
    last_ = now;
    return ticked;
  }

  /// Moves the window to `now` without an event.
  /// @returns Whether a tick has passed.
  bool advance(time_point now) noexcept {
    if (now - start_ < tick_) return false;
    if (start_ == distant_past) {
      start_ = now;
      return false;
    }
    parts_[current_] = std::exchange(open_, {});
    total_ += parts_[current_].events;
    std::int64_t passed = (now - start_) / tick_;
    start_ += passed * tick_;
    if (passed > static_cast<std::int64_t>(ticks)) passed = ticks;
    for (; passed > 0; --passed) {
      const bool whole = current_age_ + 1 >= ticks;
      if (!whole) ++current_age_;
      current_ = (current_ + 1) % ticks;
      total_ -= parts_[current_].events;
      parts_[current_] = {};
    }
    recompute();
    return true;
  }

  /// Whether a tick has passed at `now`, so that `add` or `advance` would move the window.
  [[nodiscard]] bool ticks_by(time_point now) const noexcept { return now - start_ >= tick_; }

  /// Events a second over the complete ticks of the window; 0 before the first tick has passed.
  [[nodiscard]] double rate() const noexcept { return rate_; }

  /// Squared coefficient of variation of the gaps: 0 for a regular stream, 1 for a Poisson stream,
  /// more for bursts. 1 until 32 gaps have been seen.
  [[nodiscard]] double variability() const noexcept { return variability_; }

 private:
  /// The events within one tick. The fields lie together since each event changes all of them.
  struct part {
    std::uint32_t events = 0;
    std::uint32_t gaps = 0;
    double gap_sum = 0;
    double gap_squares = 0;
  };

  void recompute() noexcept {
    const double width = to_seconds(tick_ * static_cast<std::int64_t>(current_age_));
    rate_ = static_cast<double>(total_) / width;
    double sum = 0;
    double squares = 0;
    std::uint64_t n = 0;
    for (const part& p : parts_) {
      sum += p.gap_sum;
      squares += p.gap_squares;
      n += p.gaps;
    }
    if (n < 32 || sum <= 0) return;
    const double mean = sum / static_cast<double>(n);
    const double variance = squares / static_cast<double>(n) - mean * mean;
    variability_ = variance > 0 ? variance / (mean * mean) : 0;
  }

  std::array<part, ticks> parts_{};
  std::size_t current_ = 0;      // Index at which `open_` will be stored.
  std::size_t current_age_ = 0;  // Complete ticks before the current one, at most ticks − 1.
  std::uint64_t total_ = 0;      // Events of the complete ticks.
  double rate_ = 0;
  double variability_ = 1;
  // Each event needs only the following fields. They share one cache line, which has 16 bytes left.
  alignas(64) duration tick_;
  time_point start_ = distant_past;  // Start of the current, incomplete tick.
  time_point last_ = distant_past;
  part open_;  // Events of the current tick.
};

}  // namespace cohort
