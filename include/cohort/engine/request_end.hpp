// SPDX-License-Identifier: Apache-2.0
/// @file
/// What becomes of a request whose batch has ended: `may_run_again`, `how_it_ended`.
#pragma once

#include <cohort/core/outcome.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <cstdint>

namespace cohort::engine {

/// Whether a request of a batch that failed or hangs may wait for another one, if there is time:
/// its model bears it, it is wanted, its own values are not to blame, and neither a device hung
/// with it nor did a second one fail it.
/// @param retries Most times that it may.
[[nodiscard]] inline bool may_run_again(const request& r, bool failed, bool is_repeatable,
                                        std::uint32_t retries) noexcept {
  return failed && is_repeatable && !r.is_unfit && !r.is_spent && !r.cancel_requested &&
         r.attempts < retries;
}

/// How a request has ended that does not run again. Completion wins over a cancellation that nobody
/// has seen. @param judged_at When its result is where deadlines are judged.
[[nodiscard]] inline outcome how_it_ended(const request& r, bool failed,
                                          time_point judged_at) noexcept {
  if (r.cancel_requested) return outcome::cancelled;
  if (failed) return outcome::failed;
  return judged_at <= r.deadline ? outcome::completed : outcome::late;
}

}  // namespace cohort::engine
