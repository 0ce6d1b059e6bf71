// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batches that requests can enter and leave between stages: `pipeline` combines table, buffers,
/// executors and a policy in one value.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/batch_table.hpp>
#include <cohort/batching/meta_ops.hpp>
#include <cohort/batching/observer.hpp>
#include <cohort/batching/pipeline_options.hpp>
#include <cohort/batching/pipeline_sink.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/stage_executor.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/batching/waiting_room.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::batching {

/// Staged batching as a value: owns no thread, reads no clock, launches nothing. Within one instant
/// call `on_arrival` for all that arrive, as one group, then `on_complete`, then `advance`: only
/// `advance` closes windows and starts work. `next_wake` says when to call it if nothing happens
/// before. Every accepted request ends exactly once: completed, cancelled or failed. Cost: O(stages
/// · lanes + requests touched) a call, and the policy's. Allocates only while a queue grows to a
/// length it never had. Thread safety: none.
/// @tparam Policy `staging_policy`.  @tparam Observer `batch_observer`.
/// Source: DVABatch; docs/batching/pipeline.md.
template <staging_policy Policy = plain_policy, batch_observer Observer = null_batch_observer>
class pipeline {
 public:
  /// @param profile Must outlive the pipeline. Its stages and batch_max are the model's.
  /// @throws config_error If an option is outside its range.
  pipeline(const stage_profile& profile, const pipeline_options& o, Policy policy,
           Observer obs = {})
      : profile_{&profile},
        options_{o},
        policy_{std::move(policy)},
        ops_{{.stages = profile.stages(), .batch_max = profile.batch_max(), .max_rows = o.max_rows},
             o.stretch,
             std::move(obs)},
        room_{{.max_waiting = o.max_waiting,
               .batch_max = profile.batch_max(),
               .buckets = profile.buckets(),
               .window = o.window}} {
    expects(o.buffer_sets >= 1, "pipeline: buffer_sets must be at least 1");
    const std::uint32_t lanes = o.executors_per_set ? o.buffer_sets : 1;
    sets_per_lane_ = o.buffer_sets / lanes;
    lanes_.assign(lanes, executor_chain{profile.stages(), sets_per_lane_});
    group_.reserve(profile.batch_max());
    parts_.resize(profile.batch_max());
  }

  [[nodiscard]] const Policy& policy() const noexcept { return policy_; }
  /// Uses another policy from now on, also for existing rows.
  void adopt(Policy p) noexcept { policy_ = std::move(p); }
  [[nodiscard]] Observer& observer() noexcept { return ops_.observer(); }
  [[nodiscard]] const meta_ops<Observer>& operations() const noexcept { return ops_; }
  [[nodiscard]] const executor_chain& lane(std::uint32_t l) const noexcept { return lanes_[l]; }
  [[nodiscard]] std::uint32_t lanes() const noexcept {
    return static_cast<std::uint32_t>(lanes_.size());
  }
  [[nodiscard]] std::uint32_t waiting() const noexcept { return room_.list().size(); }
  [[nodiscard]] std::uint32_t in_flight() const noexcept { return in_flight_; }
  /// Whether nothing waits or runs; then all buffers are available and the table is empty.
  [[nodiscard]] bool is_idle() const noexcept {
    return room_.list().empty() && ops_.table().empty() &&
           std::ranges::all_of(lanes_, [](const executor_chain& c) { return c.is_idle(); });
  }

  /// Adds requests that arrive at one instant. @returns How many were accepted, from the first; the
  /// others are refused because `max_waiting` requests wait.
  std::size_t on_arrival(std::span<const staged_request> group, time_point now) {
    if (group.empty()) return 0;
    if (!room_.is_open() && stretch_arrivals(group, now)) return group.size();
    std::size_t taken = 0;
    for (const staged_request& r : group) {
      COHORT_ASSERT(r.bucket < profile_->buckets());
      if (!room_.push(r, now)) break;
      ++taken;
    }
    return taken;
  }

  /// Reports that a lane's stage has finished its launch. @param failed Its requests fail.
  template <pipeline_sink Sink>
  void on_complete(std::uint32_t lane, std::uint32_t stage, time_point now, Sink& sink,
                   bool failed = false) {
    running_share_ -= share_of(lane, stage);
    leave_stage(lane, stage, now, sink, failed);
    if (ops_.table().empty()) running_share_ = 0;  // No residue of rounding.
  }

  /// Cancels a request. A waiting request ends at once, one in a stage when the stage is done.
  /// @returns Whether the pipeline had it. O(requests here).
  template <pipeline_sink Sink>
  bool on_cancel(std::uint64_t tag, time_point now, Sink& sink) {
    if (const std::optional<staged_request> waited = room_.cancel(tag)) {
      tell_end(*waited, outcome::cancelled, now, sink);
      return true;
    }
    for (batch_row* r = table().oldest(); r != nullptr; r = table().after(*r)) {
      for (std::uint32_t k = 0; k < r->size; ++k) {
        slot& x = r->slots[k];
        if (!x.live || x.request.tag != tag) continue;
        if (x.leaving) return false;
        if (is_running(*r, k)) {
          x.leaving = true;
        } else {
          end(*r, k, meta_op::cancel, outcome::cancelled, now, sink);
        }
        return true;
      }
    }
    return false;
  }

  /// Closes a window that is due, makes rows, and starts all that can start.
  template <pipeline_sink Sink>
  void advance(time_point now, Sink& sink) {
    room_.advance(now);
    again_ = never;
    do {
      run_lanes(now, sink);
    } while (enter(now));
  }

  /// When `advance` must be called if nothing happens before, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(room_.closes_at(), again_);
  }

 private:
  [[nodiscard]] batch_table& table() noexcept { return ops_.table(); }
  [[nodiscard]] bool is_serial_blocked(const batch_row& r) noexcept {
    return r.serial && ops_.has_earlier_sibling(r.id);
  }
  [[nodiscard]] std::uint32_t lane_of(const batch_row& r) const noexcept {
    return r.set / sets_per_lane_;
  }
  [[nodiscard]] double share_of(std::uint32_t lane, std::uint32_t stage) const noexcept {
    const item i = ops_.trimmed(lanes_[lane][stage].work);
    return profile_->share(stage, i.count, ops_.table()[i.batch].bucket);
  }

  bool stretch_arrivals(std::span<const staged_request> group, time_point now) {
    const batch_row* latest = table().latest();
    const auto n = static_cast<std::uint32_t>(group.size());
    if (latest == nullptr || latest->launched_to > 0 || !room_.list().empty() ||
        !policy_.stretches_on_arrival(*latest, n)) {
      return false;
    }
    for (const staged_request& r : group) {
      if (r.bucket > latest->bucket) return false;
    }
    if (!ops_.stretch(group, now)) return false;
    in_flight_ += n;
    return true;
  }

  /// Makes one row of waiting requests, if the rules allow it and the policy chooses to.
  bool enter(time_point now) {
    const std::uint32_t eligible = room_.eligible();
    if (eligible == 0 || ops_.table().free_rows() == 0) return false;
    if (!room_.has_window() && !can_start_row()) return false;
    const entry_view view{.now = now,
                          .waiting = room_.list(),
                          .eligible = eligible,
                          .rows = ops_.table().rows(),
                          .requests_in_flight = in_flight_,
                          .running_share = running_share_,
                          .window = room_.has_window(),
                          .rate = room_.rate(now),
                          .lanes = lanes(),
                          .mix = room_.mix()};
    const entry_decision d = policy_.entry(view);
    if (d.count == 0) {
      again_ = d.again;
      return false;
    }
    group_.clear();
    room_.gather(std::min({d.count, eligible, profile_->batch_max()}), d.bucket, d.fill, group_);
    if (group_.empty()) return false;
    ops_.make(group_, now, policy_.foresees_split(static_cast<std::uint32_t>(group_.size())),
              d.bucket);
    in_flight_ += static_cast<std::uint32_t>(group_.size());
    return true;
  }

  /// Whether a new row would start at once.
  [[nodiscard]] bool can_start_row() const noexcept {
    if (options_.entry == entry_rule::idle) return ops_.table().empty();
    const item_queue& first = ops_.queue(0);
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (ops_.table()[first[i].batch].set == no_set) return false;
    }
    for (const executor_chain& c : lanes_) {
      if (options_.executors_per_set
              ? c.is_idle()
              : first.empty() && c[0].state == executor_state::active && c.legit_set(0) != no_set) {
        return true;
      }
    }
    return false;
  }

  /// Lets every executor take and start work.
  template <pipeline_sink Sink>
  void run_lanes(time_point now, Sink& sink) {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
        executor_chain& c = lanes_[l];
        c.settle([&](std::uint32_t s) {
          moved = true;
          started(l, s, now, sink);
        });
        for (std::uint32_t s = c.stages(); s-- > 0;) {
          if (c[s].state == executor_state::active && pull(l, s, now, sink)) moved = true;
        }
      }
    }
  }

  template <pipeline_sink Sink>
  bool pull(std::uint32_t l, std::uint32_t s, time_point now, Sink& sink) {
    executor_chain& c = lanes_[l];
    const item_queue& q = ops_.queue(s);
    for (std::size_t at = 0; at < q.size(); ++at) {
      batch_row& r = table()[q[at].batch];
      if (r.set == no_set) {
        const std::uint32_t j = c.legit_set(s);
        if (j == no_set || (options_.executors_per_set && !c.is_idle())) return false;
        r.set = l * sets_per_lane_ + j;
      } else if (lane_of(r) != l) {
        continue;
      }
      if (is_serial_blocked(r)) return false;
      const item next = ops_.take(s, at);
      if (c.pull(s, next, r.set % sets_per_lane_)) started(l, s, now, sink);
      return true;
    }
    return false;
  }

  /// An executor begins to work on its item: launches it, or passes it if no request is left.
  template <pipeline_sink Sink>
  void started(std::uint32_t l, std::uint32_t s, time_point now, Sink& sink) {
    const item work = lanes_[l][s].work;
    batch_row& r = table()[work.batch];
    if (ops_.is_dead(work) || s < r.launched_to) {  // Nothing to run, or it has run.
      leave_stage(l, s, now, sink, false);
      return;
    }
    const item i = ops_.trimmed(work);
    const std::uint32_t last = last_of_run(r, work, s, sink);
    if (last > s) r.launched_to = last + 1;
    ops_.observer().launched(r, s, i, now);
    running_share_ += share_of(l, s);
    try {
      sink.launch({.stage = s,
                   .last = last,
                   .lane = l,
                   .set = r.set,
                   .first = r.base + i.start,
                   .count = i.count,
                   .bucket = r.bucket,
                   .order = r.order,
                   .slots = r.slots.subspan(i.start, i.count)});
    } catch (...) {  // A failed launch fails its requests, not the pipeline.
      running_share_ -= share_of(l, s);
      leave_stage(l, s, now, sink, true);
    }
  }

  /// Whether no work precedes a row that starts now: it is the oldest, or all older rows have
  /// already run to the end and only pass through the stages.
  [[nodiscard]] bool is_foremost(const batch_row& r) {
    if (table().oldest() == &r) return true;
    for (batch_row* older = table().oldest(); older != &r; older = table().after(*older)) {
      if (older->launched_to < profile_->stages()) return false;
    }
    std::uint32_t working = 0;
    for (const executor_chain& c : lanes_) working += c.working();
    return working == 1;
  }
  /// The last stage that a row which starts stage s may run to in one launch. This requires that no
  /// other row is in its way, that the row is whole, and that no stage before needs to be judged.
  template <pipeline_sink Sink>
  [[nodiscard]] std::uint32_t last_of_run(const batch_row& r, const item& i, std::uint32_t s,
                                          [[maybe_unused]] Sink& sink) {
    if constexpr (requirement::sink_runs_through<Sink> && requirement::decides_run<Policy>) {
      if (options_.entry == entry_rule::idle && i.count == r.size && is_foremost(r)) {
        const std::uint32_t last = std::clamp(policy_.run_to(r, s), s, profile_->stages() - 1);
        if constexpr (requirement::sink_judges<Sink>) {
          while (s < last && !sink.judges(s)) ++s;
          return s;
        }
        return last;
      }
    }
    return s;
  }

  [[nodiscard]] bool is_running(const batch_row& r, std::uint32_t place) const noexcept {
    for (const executor_chain& c : lanes_) {
      for (std::uint32_t s = 0; s < c.stages(); ++s) {
        const stage_executor& e = c[s];
        if (e.state == executor_state::working && e.work.batch == r.id && e.work.start <= place &&
            place < e.work.start + e.work.count) {
          return true;
        }
      }
    }
    return false;
  }

  template <pipeline_sink Sink>
  void end(batch_row& r, std::uint32_t place, meta_op how, outcome o, time_point now, Sink& sink) {
    const staged_request request = r.slots[place].request;
    ops_.end(how, r.id, place, now);
    --in_flight_;
    tell_end(request, o, now, sink);
  }
  /// The request has ended, even if the sink throws.
  template <pipeline_sink Sink>
  static void tell_end(const staged_request& r, outcome o, time_point now, Sink& sink) noexcept {
    try {
      sink.end(r, o, now);
    } catch (...) {  // NOLINT(bugprone-empty-catch): nothing can handle it.
    }
  }
  template <pipeline_sink Sink>
  void fail(batch_row& r, time_point now, Sink& sink) {
    for (std::uint32_t k = 0; k < r.size; ++k) {
      if (r.slots[k].live) end(r, k, meta_op::fail, outcome::failed, now, sink);
    }
  }

  template <pipeline_sink Sink>
  void leave_stage(std::uint32_t l, std::uint32_t s, time_point now, Sink& sink, bool failed);
  template <pipeline_sink Sink>
  void hand_over(std::uint32_t l, std::uint32_t s, batch_id id, time_point now, Sink& sink);
  template <pipeline_sink Sink>
  void judge(batch_row& r, const item& i, std::uint32_t s, time_point now, Sink& sink);
  template <pipeline_sink Sink>
  verdict verdict_of(const staged_request& r, std::uint32_t s, Sink& sink);
  bool stretch(std::uint32_t s, batch_id id, time_point now);

  const stage_profile* profile_;
  pipeline_options options_;
  [[no_unique_address]] Policy policy_;
  meta_ops<Observer> ops_;
  std::vector<executor_chain> lanes_;
  std::uint32_t sets_per_lane_ = 1;
  waiting_room room_;
  time_point again_ = never;
  std::uint32_t in_flight_ = 0;
  double running_share_ = 0;
  std::vector<staged_request> group_;
  std::vector<std::uint32_t> parts_;
};

}  // namespace cohort::batching

#include <cohort/batching/detail/pipeline_hand_over.ipp>  // IWYU pragma: keep
