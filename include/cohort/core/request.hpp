// SPDX-License-Identifier: Apache-2.0
/// @file
/// The request: an intrusive node that the caller owns, and the list that batches are made of.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <boost/intrusive/list.hpp>

#include <atomic>
#include <cstdint>
#include <optional>

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

}  // namespace cohort
