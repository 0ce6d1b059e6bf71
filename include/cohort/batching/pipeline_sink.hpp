// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a pipeline tells whoever carries out its actions.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/batch_table.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace cohort::batching {

/// An item that a stage starts on now.
struct stage_launch {
  std::uint32_t stage;          ///< From 0.
  std::uint32_t last;           ///< `stage`, or a later one: run all up to it, one by one.
  std::uint32_t lane;           ///< Executors of the set, with `executors_per_set`; else 0.
  std::uint32_t set;            ///< Buffer set.
  std::uint32_t first;          ///< First slot in the buffers.
  std::uint32_t count;          ///< Slots, at least 1.
  std::uint32_t bucket;         ///< Size class it is padded to.
  std::uint64_t order;          ///< Age of its row; older ones come first on a serial device.
  std::span<const slot> slots;  ///< `count` of them; not all need be live. Valid during the call.

  /// Slots that `stage` is not for. O(count).
  [[nodiscard]] std::uint32_t skipping() const noexcept {
    std::uint32_t n = 0;
    for (const slot& s : slots) n += s.live && s.skips ? 1U : 0U;
    return n;
  }
};

namespace requirement {
template <class S>
concept sink_takes_launches = requires(S& s, const stage_launch& l) { s.launch(l); };
/// It runs several stages of a row at once, if the policy lets it.
template <class S>
concept sink_runs_through = S::runs_through;
/// It knows what stages have computed.
template <class S>
concept sink_judges = requires(S& s, const staged_request& r, std::uint32_t stage) {
  { s.judges(stage) } -> std::same_as<bool>;
  { s.judge(r, stage) } -> std::same_as<verdict>;
};
}  // namespace requirement

/// Carries out a pipeline's actions, on the thread that called it: `launch(stage_launch)` starts a
/// stage and is answered by `on_complete(lane, stage)`, later; `end(request, outcome, now)`: it has
/// ended, exactly once; `move(set, boundary, from, to)`: copy a slot within a buffer, after all
/// that was launched into it and before what follows. A buffer has batch_max slots and one more, to
/// exchange two with. A live slot with `skips` must not be run: its row is copied from the boundary
/// before the stage to the one after. Must not call back. What `launch` throws fails the requests
/// of the item, what `move` throws those of the row; what `end` throws is dropped.
///
/// It may have `judges(stage)`, whether anyone wants to judge by what the stage has computed, and
/// `judge(request, stage)`, asked after the stage for each of its requests that the policy lets go
/// on. What it throws fails the request. If it has a constant `runs_through` that is true, a launch
/// may be of several stages, and is answered once, for the first of them, when all are done;
/// without it `last` is always `stage`.
template <class S>
concept pipeline_sink =
    requirement::sink_takes_launches<S> &&
    requires(S& s, const staged_request& r, outcome how, time_point now, std::uint32_t set,
             std::uint32_t boundary, std::uint32_t from, std::uint32_t to) {
      s.end(r, how, now);
      s.move(set, boundary, from, to);
    };

}  // namespace cohort::batching
