// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a picker may answer streams: `leadership`.
#pragma once

#include <cohort/core/time.hpp>

#include <cstdint>

namespace cohort::cluster {

/// The newest term that a picker has heard of, and until when it is its own. A store grants terms,
/// each to one picker, with growing epochs; answers carry the epoch, so that endpoints can refuse
/// those of an older term. A value. O(1) a call. Thread safety: none.
class leadership {
 public:
  /// The store grants or prolongs a term. Grants may be doubled, late or out of order.
  /// @returns Whether a new term of this picker's begins.
  constexpr bool on_grant(std::uint64_t epoch, time_point until, time_point now) noexcept {
    if (epoch < epoch_ || until <= now || (epoch == epoch_ && !is_own_)) return false;
    const bool is_new = epoch > epoch_;
    if (is_new || until > until_) until_ = until;
    epoch_ = epoch;
    is_own_ = true;
    return is_new;
  }
  /// Another picker has a term, or the store has ended one: an epoch as high as that is not this
  /// picker's any more.
  constexpr void on_other(std::uint64_t epoch) noexcept {
    if (epoch < epoch_) return;
    epoch_ = epoch;
    is_own_ = false;
  }

  [[nodiscard]] constexpr bool leads(time_point now) const noexcept {
    return is_own_ && now < until_;
  }
  /// When the term ends, or `never` if there is none.
  [[nodiscard]] constexpr time_point until() const noexcept { return is_own_ ? until_ : never; }
  [[nodiscard]] constexpr std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  std::uint64_t epoch_ = 0;
  time_point until_ = distant_past;
  bool is_own_ = false;
};

}  // namespace cohort::cluster
