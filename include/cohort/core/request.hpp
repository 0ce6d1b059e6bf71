// SPDX-License-Identifier: Apache-2.0
/// @file
/// The request (an intrusive node that the caller owns), its outcomes, the reasons for refusal, and
/// the list that batches are made of.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <boost/intrusive/list.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort {

/// Where a request is in its life. Only the scheduler that holds the request changes it.
enum class request_state : std::uint8_t {
  idle,     ///< Not submitted, or ended: the caller may change, reuse or destroy it.
  queued,   ///< Accepted, waiting for a batch.
  running,  ///< In a batch that was sent to a device.
};

/// Whether a real-time engine has a request, and whether its cancellation is on its way there. With
/// assertions: or whether it was destroyed.
enum class engine_hold : std::uint8_t { none, held, cancelling, destroyed };

/// One inference. The caller fills the public fields, submits it, and keeps it alive and unmoved
/// until its outcome; nothing of it is copied. Derive from it, or embed it, to carry inputs along.
/// Thread safety: none; from submission to outcome it belongs to the engine. A build with
/// assertions ends with a sentence if a request is submitted twice, destroyed before its outcome,
/// changed while it is queued, or given to an engine that does not have it.
struct alignas(64) request {
  request() noexcept = default;
  request(const request&) = delete;
  request& operator=(const request&) = delete;
  ~request() {
    COHORT_ASSERT_USE(!hook.is_linked(),
                      "a request was destroyed before its outcome; keep it until it has ended");
#ifndef NDEBUG
    hold.store(engine_hold::destroyed, std::memory_order_relaxed);  // Queues look for it.
#endif
  }

  model_id model;           ///< The model to run.
  std::uint32_t batch = 0;  ///< Number of requests in its batch; 0 if it was in none.
  time_point arrival;       ///< When it reached the system, by its clock. Rates use it.
  time_point deadline;      ///< When its result must be ready.
  /// Links the request into whatever holds it: an inbox or a batch. It is in at most one at a time.
  /// It lies with the fields that each arrival and each batch need, in one cache line.
  boost::intrusive::list_member_hook<> hook;
  std::uint32_t size = 1;     ///< Input length, in units of the model (tokens, rows); at least 1.
  std::uint8_t priority = 0;  ///< Class of service; 0 is the most important.
  /// Rows that run together; at least 1. More than 1 requires a model with a largest batch of one
  /// request; the request is assumed to take rows · ℓ(1).
  std::uint16_t rows = 1;

  /// Written by the scheduler; read-only for the caller.
  request_state state = request_state::idle;
  bool cancel_requested = false;
  std::uint8_t attempts = 0;   ///< Times that it was requeued after its batch failed or hung.
  std::uint64_t sequence = 0;  ///< Position in its model's arrival order, from 1.
  time_point starts;           ///< Planned start of its batch.
  request_id id;               ///< The caller's name for it; need not be unique.
  /// If refused because its model is overloaded: a similar request would be accepted after about
  /// this time.
  duration retry_after{0};
  /// Written by the backend before it says that the request failed: its own input is the cause, and
  /// no device can compute it. Backends see requests as const.
  mutable bool is_unfit = false;
  /// Written by the backend when it abandons a batch that hangs: no device was working on this
  /// request.
  mutable bool was_behind = false;
  /// Used by the real-time engine.
  std::atomic<engine_hold> hold{engine_hold::none};
  /// Used by the sharded scheduler: whether the request has ended, or which cancellation is on its
  /// way.
  std::uint32_t fate = 0;
  /// Used by the loop: whether the request is counted as waiting for a batch. Mutable because the
  /// loop sees batches as const.
  mutable bool is_waiting = false;
  /// Used by the engine: a device hung in its batch, or a second device failed it, so it is not
  /// retried.
  bool is_spent = false;
  /// Used by the engine: the first device that failed a batch with this request.
  std::optional<device_id> failed_on;
  /// Used by the engine in a build with assertions: the engine that has the request, and a digest
  /// of its public fields as submitted.
  std::uint32_t owner = 0;
  std::uint32_t seal = 0;
};

/// Requests in order, linked through their hooks. Owns none of them.
using request_list = boost::intrusive::list<
    request,
    boost::intrusive::member_hook<request, boost::intrusive::list_member_hook<>, &request::hook>,
    boost::intrusive::constant_time_size<true>>;

/// How an accepted request ended. Every accepted request gets exactly one.
enum class outcome : std::uint8_t {
  completed,  ///< Its batch finished at or before its deadline.
  late,       ///< Its batch finished after its deadline; the result exists.
  dropped,    ///< Never ran: its deadline could not be met any more.
  cancelled,  ///< Cancelled by the caller before its batch finished.
  failed,     ///< The device failed its batch.
  refused,    ///< On arrival in the loop: it could not meet its deadline (`request::retry_after`).
};

/// The number of outcomes.
inline constexpr std::size_t outcome_count = 6;

/// Why a request was not accepted. It then still belongs to the caller, untouched.
enum class refusal : std::uint8_t {
  unknown_model,        ///< No such model, or it is being removed.
  queue_full,           ///< The model's queue is at its capacity.
  too_big,              ///< The request's size is above the model's limit.
  deadline_infeasible,  ///< Even alone and at once it would miss its deadline.
  draining,             ///< The engine takes no more requests.
  overloaded,           ///< It would miss its deadline behind the waiting requests.
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

/// The outcome of a request that was accepted first and then refused.
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
