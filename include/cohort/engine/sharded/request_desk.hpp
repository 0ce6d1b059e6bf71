// SPDX-License-Identifier: Apache-2.0
/// @file
/// Manages an engine's requests on one model thread: `request_desk`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/sharded/ring.hpp>
#include <cohort/engine/admission.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/early_refusal.hpp>
#include <cohort/engine/request_life.hpp>
#include <cohort/engine/sharded/cpu.hpp>
#include <cohort/engine/sharded/shard_desk.hpp>
#include <cohort/engine/sharded/sharded_doors.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace cohort::engine {

/// Rules for requests.
struct request_rules {
  duration response{0};       ///< From the end of a batch until deadlines are judged.
  std::uint32_t retries = 3;  ///< Maximum retries of a repeatable request.
  refusal_options refusals{};
};

/// Manages the requests of one shard's models: admission, outcomes and retries; passes batches to
/// the rank's thread, which has the devices. Decides like `basic_engine_core`; what it learned for
/// refusals of a model is lost when the model moves. A `requests_desk`. Thread safety: `take_sent`
/// and `has_sent` on the rank's thread, the rest on the shard's.
template <class Half, completion_context Context>
class request_desk {
 public:
  /// @param doors Must outlive this. @param batches Maximum number on the way to the rank's thread.
  request_desk(sharded_doors& doors, Context context, const request_rules& rules,
               std::size_t batches)
      : doors_{doors},
        context_{std::move(context)},
        rules_{rules},
        admission_{rules.refusals, rules.response},
        sent_{batches} {}

  void on_model(model_id id, const Half& half) {
    admission_.add_model(id, half.models().slo(id), {});
  }
  [[nodiscard]] std::optional<refusal> refuses(request& r, Half& half, time_point now) noexcept {
    r.is_waiting = true;
    r.cancel_requested = false;
    r.attempts = 0;
    r.is_unfit = false;
    r.is_spent = false;
    r.failed_on.reset();
    return admission_.refuses_to_queue(r, half, now);
  }
  void refused(request& r, refusal why) noexcept { end(r, outcome_of(why)); }
  [[nodiscard]] bool runs_again(request& r, bool failed, const Half& half,
                                time_point now) noexcept {
    if (!may_run_again(r, failed, doors_[r.model].is_repeatable, rules_.retries)) return false;
    if (!half.models().is_feasible(r.model, r.deadline, now)) return false;
    ++r.attempts;
    return !half.models().is_full(r.model);
  }
  void waits_again(request& r) noexcept {
    r.is_waiting = true;
    doors_.wait_again(r.model);
  }
  void ended(request& r, bool failed, time_point now) noexcept {
    end(r, how_it_ended(r, failed, now + rules_.response));
  }
  void cancelled(request& r) noexcept { end(r, outcome::cancelled); }
  void drop(request& r, const Half& half, time_point now) noexcept {
    admission_.note_drop(r, half, now);
    // A request that was retried did run.
    end(r, r.attempts > 0 ? outcome::failed : outcome::dropped);
  }
  void dispatch(deferred::batch&& b, const Half& half, time_point now) noexcept {
    for (const request& r : b.requests) r.is_waiting = false;
    doors_.stop_waiting(b.model, b.size());
    admission_.note_batch(b, half, now);
    while (!sent_.has_room()) relax();  // It has room for all batches of devices: never waits.
    sent_.push(std::move(b));
  }

  /// @returns False if there is none.
  bool take_sent(deferred::batch& b) noexcept { return sent_.pop(b); }
  [[nodiscard]] bool has_sent() const noexcept { return !sent_.empty(); }
  [[nodiscard]] Context& context() noexcept { return context_; }

 private:
  void end(request& r, outcome how) noexcept {
    const model_id of = r.model;
    // The receiver may submit another request at once.
    if (std::exchange(r.is_waiting, false)) doors_.stop_waiting(of, 1);
    context_.deliver(r, how);
    doors_.leave(of);
  }

  sharded_doors& doors_;
  Context context_;
  request_rules rules_;
  admission<Half> admission_;
  deferred::ring<deferred::batch> sent_;
};

}  // namespace cohort::engine
