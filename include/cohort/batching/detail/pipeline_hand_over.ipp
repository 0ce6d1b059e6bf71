// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a pipeline handles a row between two stages: requests leave or join, and the row may be
/// split. Part of pipeline.hpp, which includes it at its end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace cohort::batching {

/// An item has left its stage: its requests may end, and its row goes on if it is whole.
template <staging_policy Policy, batch_observer Observer>
template <pipeline_sink Sink>
void pipeline<Policy, Observer>::leave_stage(std::uint32_t l, std::uint32_t s, time_point now,
                                             Sink& sink, bool failed) {
  const item work = lanes_[l][s].work;
  batch_row& r = table()[work.batch];
  const bool last = s + 1 == profile_->stages();
  for (std::uint32_t k = work.start; k < work.start + work.count; ++k) {
    if (!r.slots[k].live) continue;
    r.slots[k].skips = false;
    if (failed) {
      end(r, k, meta_op::fail, outcome::failed, now, sink);
    } else if (last) {
      end(r, k, meta_op::leave, outcome::completed, now, sink);
    } else if (r.slots[k].leaving) {
      end(r, k, meta_op::cancel, outcome::cancelled, now, sink);
    }
  }
  switch (ops_.finish(s, work, now)) {
    case progress::held:
      lanes_[l].complete_held(s);
      break;
    case progress::followed:
      COHORT_ASSERT(r.launched_to == 0);  // Only whole rows run through stages.
      judge(r, work, s, now, sink);
      if (stretch(s, work.batch, now)) {
        lanes_[l].complete_held(s);
      } else {
        ops_.hand_over(s, work.batch, now);
        lanes_[l].complete(s);
      }
      break;
    case progress::whole:
      hand_over(l, s, work.batch, now, sink);
      break;
    case progress::ended:
      ops_.remove(work.batch);
      lanes_[l].complete(s);
      break;
  }
}

/// A row stands whole after stage s: decides which requests leave, skip or join, and whether the
/// row is split.
template <staging_policy Policy, batch_observer Observer>
template <pipeline_sink Sink>
void pipeline<Policy, Observer>::hand_over(std::uint32_t l, std::uint32_t s, batch_id id,
                                           time_point now, Sink& sink) {
  batch_row& standing = table()[id];
  if (s + 1 < standing.launched_to) {
    ops_.hand_over(s, id, now);
    lanes_[l].complete(s);
    return;
  }
  standing.launched_to = 0;
  judge(standing, {id, 0, standing.size}, s, now, sink);
  bool moved = true;
  const auto move = [&](const batch_row& r, std::uint32_t from, std::uint32_t to) {
    try {
      sink.move(r.set, s + 1, from, to);
    } catch (...) {
      moved = false;
    }
  };
  id = ops_.compact(s, id, now, move);
  ops_.put_skipping_last(id, move);
  if (!moved) fail(table()[id], now, sink);
  if (stretch(s, id, now)) {
    lanes_[l].complete_held(s);
    return;
  }
  const batch_row& r = table()[id];
  std::uint32_t parts = 1;
  if (r.live > 1) {
    const hand_over_view view{.now = now,
                              .row = r,
                              .stage = s,
                              .waiting = room_.list(),
                              .may_join = 0,
                              .rate = room_.rate(now)};
    const std::uint32_t n = policy_.split(view, parts_);
    if (n >= 2 && ops_.split(s, id, std::span{parts_}.first(n), now, options_.serial_children)) {
      parts = n;
    }
  }
  if (parts == 1) ops_.hand_over(s, id, now);
  lanes_[l].complete(s, parts);
}

/// Judges the requests of an item that has left stage s.
template <staging_policy Policy, batch_observer Observer>
template <pipeline_sink Sink>
void pipeline<Policy, Observer>::judge(batch_row& r, const item& i, std::uint32_t s, time_point now,
                                       Sink& sink) {
  for (std::uint32_t k = i.start; k < i.start + i.count; ++k) {
    slot& x = r.slots[k];
    if (!x.live || x.judged > s) continue;  // Judged before the row was held.
    x.judged = s + 1;
    try {
      switch (verdict_of(x.request, s, sink)) {
        case verdict::go_on:
          break;
        case verdict::skip_next:
          x.skips = true;
          break;
        case verdict::leave:
          end(r, k, meta_op::leave, outcome::completed, now, sink);
          break;
      }
    } catch (...) {
      end(r, k, meta_op::fail, outcome::failed, now, sink);
    }
  }
}
template <staging_policy Policy, batch_observer Observer>
template <pipeline_sink Sink>
verdict pipeline<Policy, Observer>::verdict_of(const staged_request& r, std::uint32_t s,
                                               [[maybe_unused]] Sink& sink) {
  const verdict v = policy_.judge(r, s);
  if constexpr (requirement::sink_judges<Sink>) {
    if (v == verdict::go_on && sink.judges(s)) return sink.judge(r, s);
  }
  return v;
}

/// Lets waiting requests join a row at a hand-over. @returns Whether some did: the row is held.
template <staging_policy Policy, batch_observer Observer>
bool pipeline<Policy, Observer>::stretch(std::uint32_t s, batch_id id, time_point now) {
  const batch_row& r = table()[id];
  const std::uint32_t eligible = room_.eligible();
  if (eligible == 0 || r.live == 0) return false;
  std::uint32_t room = std::min(eligible, profile_->batch_max() - r.size);
  if (room == 0 || ops_.can_stretch(r, 1, now) != meta_refusal::none) return false;
  const hand_over_view view{.now = now,
                            .row = r,
                            .stage = s,
                            .waiting = room_.list(),
                            .may_join = room,
                            .rate = room_.rate(now)};
  room = std::min(room, policy_.stretch(view));
  if (room == 0) return false;
  group_.clear();
  room_.gather(room, r.bucket, fill_order::oldest, group_);
  if (group_.empty()) return false;
  ops_.stretch(group_, now);
  ops_.observer().held(r, s, now);
  in_flight_ += static_cast<std::uint32_t>(group_.size());
  return true;
}

}  // namespace cohort::batching
