// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which of several waiting candidates gets a free device: the `priority_policy` concept and
/// `earliest_latest`.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>

#include <concepts>

namespace cohort::deferred {

namespace requirement {
template <class P>
concept urgency_returns_time_point = requires(const P& p, const batch_view& b) {
  { p.urgency(b) } -> std::same_as<time_point>;
};
template <class P>
concept urgency_is_noexcept = requires(const P& p, const batch_view& b) {
  { p.urgency(b) } noexcept;
};
}  // namespace requirement

/// A key for each candidate; the smallest is served first. Semantics: pure, O(1), any thread.
/// Models: `earliest_latest`, `adaptive_priority`.
template <class P>
concept priority_policy = std::copyable<P> && requirement::urgency_returns_time_point<P> &&
                          requirement::urgency_is_noexcept<P>;

/// The candidate whose last possible start comes first. Source: Symphony, Algorithm 1, line 22.
struct earliest_latest {
  [[nodiscard]] constexpr time_point urgency(const batch_view& b) const noexcept {
    return b.deadline - b.latency;
  }
};
static_assert(priority_policy<earliest_latest>);

}  // namespace cohort::deferred
