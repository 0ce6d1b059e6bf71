// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a request ends, and why one is not accepted.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort {

/// How an accepted request ended. Every accepted request gets exactly one.
enum class outcome : std::uint8_t {
  completed,  ///< Its batch finished at or before its deadline.
  late,       ///< Its batch finished after its deadline; the result exists.
  dropped,    ///< Never ran: its deadline could not be met any more.
  cancelled,  ///< Cancelled by the caller before its batch finished.
  failed,     ///< The device failed its batch.
  refused,    ///< At its arrival in the loop: it could not be in time (`request::retry_after`).
};

/// How many ways there are.
inline constexpr std::size_t outcome_count = 6;

/// Why a request was not accepted. It then still belongs to the caller, untouched.
enum class refusal : std::uint8_t {
  unknown_model,        ///< No such model, or it is being removed.
  queue_full,           ///< The model's queue is at its capacity.
  too_big,              ///< The request's size is above the model's limit.
  deadline_infeasible,  ///< Even alone and at once it would miss its deadline.
  draining,             ///< The engine takes no more requests.
  overloaded,           ///< It would miss its deadline behind those that wait.
  no_device,            ///< Every device that could run it hangs or fails.
  model_suspended,      ///< Requests of its model made devices hang or fail.
};

[[nodiscard]] constexpr std::string_view to_string(outcome o) noexcept {
  switch (o) {
    case outcome::completed:
      return "completed";
    case outcome::late:
      return "late";
    case outcome::dropped:
      return "dropped";
    case outcome::cancelled:
      return "cancelled";
    case outcome::failed:
      return "failed";
    case outcome::refused:
      return "refused";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view to_string(refusal r) noexcept {
  switch (r) {
    case refusal::unknown_model:
      return "unknown_model";
    case refusal::queue_full:
      return "queue_full";
    case refusal::too_big:
      return "too_big";
    case refusal::deadline_infeasible:
      return "deadline_infeasible";
    case refusal::draining:
      return "draining";
    case refusal::overloaded:
      return "overloaded";
    case refusal::no_device:
      return "no_device";
    case refusal::model_suspended:
      return "model_suspended";
  }
  return "?";
}

/// How a request ends that was taken, and then refused.
[[nodiscard]] constexpr outcome outcome_of(refusal why) noexcept {
  switch (why) {
    case refusal::overloaded:
      return outcome::refused;
    case refusal::no_device:
    case refusal::model_suspended:
      return outcome::failed;
    default:
      return outcome::dropped;
  }
}

}  // namespace cohort
