// SPDX-License-Identifier: Apache-2.0
/// @file
/// The request: an intrusive node that the caller owns, how it ends, why one is not accepted, and
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

  model_id model;           ///< What to run.
  std::uint32_t batch = 0;  ///< Requests in that; 0: it was in none.
  time_point arrival;       ///< When it reached the system, by its clock: rates are measured by it.
  time_point deadline;      ///< When its result must be ready.
  /// Links the request into whatever holds it: an inbox or a batch. In no two at once. Among what
  /// each arrival and each batch need, which is one line of the cache.
  boost::intrusive::list_member_hook<> hook;
  std::uint32_t size = 1;     ///< Input length, in units of the model (tokens, rows); at least 1.
  std::uint8_t priority = 0;  ///< Class of service; 0 is the most important.
  /// Rows that run together; at least 1. A request of more is for a model whose largest batch is
  /// one request, and taken to last so many times ℓ(1).
  std::uint16_t rows = 1;

  /// Written by the scheduler; read-only for the caller.
  request_state state = request_state::idle;
  bool cancel_requested = false;
  std::uint8_t attempts =
      0;  ///< Batches that failed or hung with it, after which it was queued anew.
  std::uint64_t sequence = 0;  ///< Position in its model's arrival order, from 1.
  time_point starts;           ///< When the batch that it was sent with was to start.
  request_id id;               ///< The caller's name for it; need not be unique.
  /// Of one that was refused as its model is overloaded: after about this time one like it would be
  /// taken.
  duration retry_after{0};
  /// Written by the backend before it says that the request failed: its own values are to blame,
  /// and no device will compute them. Backends see requests as const.
  mutable bool is_unfit = false;
  /// Written by the backend when it lets go of a batch that hangs: no device was at work on this
  /// one.
  mutable bool was_behind = false;
  /// Of the real-time engine.
  std::atomic<engine_hold> hold{engine_hold::none};
  /// Of the sharded scheduler: whether it has ended, or which cancellation is on its way.
  std::uint32_t fate = 0;
  /// Of the loop: counted among those that wait for a batch. It sees batches as const.
  mutable bool is_waiting = false;
  /// Of the engine: a device hung in its batch, or a second device failed it, so it is not tried
  /// again.
  bool is_spent = false;
  /// Of the engine, once a batch with it has failed: the first device that did.
  std::optional<device_id> failed_on;
  /// Of the engine, in a build with assertions: who has it, and its public fields as submitted.
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
