// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests that have come and that a scheduler has not been told of: `unseen_requests`, and the
/// `patient_scheduler` that says whether they matter yet.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace cohort::deferred {

/// Requests of one model, in the order in which they came.
struct unseen_requests {
  model_id model;
  std::uint32_t count = 0;
  const request* first = nullptr;  ///< The first of those with the earliest deadline.
  time_point last = distant_past;  ///< The latest `arrival` among them.

  void add(const request& r) noexcept {
    if (count++ == 0 || r.deadline < first->deadline) first = &r;
    last = std::max(last, r.arrival);
  }
};

/// A scheduler that can say until when its driver may leave arrivals where they are.
/// * `quiet_until(now)`: when to look at them at the latest. It is a guess by the measured rates:
///   until then about as many should come as may. Any other instant is right, too.
/// * `may_wait(unseen, sends, drops)`: were these seen, nothing would be sent before `sends`, and
///   nobody dropped before `drops`, if the same holds for those that came before them and nothing
///   else happens. Pure: another thread may ask while the driver's sleeps.
/// * `is_scarce()`: a model has no free device, so that who comes may have to be refused.
/// Cost: O(log max_batch) and O(1), but `is_scarce` O(pools). Models: `basic_scheduler`,
/// `basic_pooled_scheduler`.
template <class S>
concept patient_scheduler = requires(const S& s, const unseen_requests& unseen, time_point t) {
  { s.quiet_until(t) } noexcept -> std::same_as<time_point>;
  { s.may_wait(unseen, t, t) } noexcept -> std::same_as<bool>;
  { s.is_scarce() } noexcept -> std::same_as<bool>;
};

}  // namespace cohort::deferred
