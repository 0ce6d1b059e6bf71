// SPDX-License-Identifier: Apache-2.0
/// @file
/// Clocks are for drivers only: the `clock` concept, the machine's steady clock and a manual one.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/time.hpp>

#include <chrono>
#include <concepts>

namespace cohort {

/// Tells the time. Semantics: `now()` never goes back. Models: `steady_clock`, `manual_clock`.
template <class C>
concept clock = requires(const C& c) {
  { c.now() } noexcept -> std::same_as<time_point>;
};

/// The machine's monotonic clock. Thread safety: any thread.
class steady_clock {
 public:
  [[nodiscard]] time_point now() const noexcept {
    return time_point{
        std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch())};
  }
};
static_assert(clock<steady_clock>);

/// Moves only when told to: virtual time. Thread safety: none.
class manual_clock {
 public:
  constexpr manual_clock() noexcept = default;
  constexpr explicit manual_clock(time_point start) noexcept : now_{start} {}

  [[nodiscard]] constexpr time_point now() const noexcept { return now_; }
  /// Moves on by `step`, which must not be negative.
  constexpr void advance(duration step) noexcept { advance_to(now_ + step); }
  /// Moves on to `instant`, which must not be in the past.
  constexpr void advance_to(time_point instant) noexcept {
    COHORT_ASSERT(instant >= now_);
    now_ = instant;
  }

 private:
  time_point now_{};
};
static_assert(clock<manual_clock>);

}  // namespace cohort
