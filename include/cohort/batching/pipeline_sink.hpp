// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface that carries out a pipeline's actions.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/batch_table.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace cohort::batching {

/// An item that a stage starts now.
struct stage_launch {
  std::uint32_t stage;          ///< From 0.
  std::uint32_t last;           ///< `stage` or a later one: run all stages up to it in order.
  std::uint32_t lane;           ///< Executors of the set, with `executors_per_set`; else 0.
  std::uint32_t set;            ///< Buffer set.
  std::uint32_t first;          ///< First slot in the buffers.
  std::uint32_t count;          ///< Slots, at least 1.
  std::uint32_t bucket;         ///< Size class it is padded to.
  std::uint64_t order;          ///< Age of its row; older ones come first on a serial device.
  std::span<const slot> slots;  ///< `count` of them; not all need be live. Valid during the call.

  /// Number of slots that skip `stage`. O(count).
  [[nodiscard]] std::uint32_t skipping() const noexcept {
    std::uint32_t n = 0;
    for (const slot& s : slots) n += s.live && s.skips ? 1U : 0U;
    return n;
  }
};

namespace requirement {
template <class S>
concept sink_takes_launches = requires(S& s, const stage_launch& l) { s.launch(l); };
/// The sink can run several stages of a row in one launch.
template <class S>
concept sink_runs_through = S::runs_through;
/// The sink can judge requests by a stage's output.
template <class S>
concept sink_judges = requires(S& s, const staged_request& r, std::uint32_t stage) {
  { s.judges(stage) } -> std::same_as<bool>;
  { s.judge(r, stage) } -> std::same_as<verdict>;
};
}  // namespace requirement

/// Carries out a pipeline's actions, on the thread that called it: `launch(stage_launch)` starts a
/// stage, and `on_complete(lane, stage)` is called when it is done; `end(request, outcome, now)`:
/// the request has ended, reported exactly once; `move(set, boundary, from, to)`: copy a slot
/// within a buffer, after all earlier launches into it and before later ones. A buffer has
/// batch_max slots and an extra one for exchanges. A live slot with `skips` must not be run: its
/// row is copied from the boundary before the stage to the one after. Must not call back. An
/// exception from `launch` fails the requests of the item, one from `move` those of the row;
/// exceptions from `end` are ignored.
///
/// It may have `judges(stage)`, whether it judges requests by the stage's output, and
/// `judge(request, stage)`, called after the stage for each request that the policy lets go on. An
/// exception fails the request. If it has a constant `runs_through` that is true, a launch may
/// cover several stages; `on_complete` is then called once, for the first of them, when all are
/// done. Without it `last` is always `stage`.
template <class S>
concept pipeline_sink =
    requirement::sink_takes_launches<S> &&
    requires(S& s, const staged_request& r, outcome how, time_point now, std::uint32_t set,
             std::uint32_t boundary, std::uint32_t from, std::uint32_t to) {
      s.end(r, how, now);
      s.move(set, boundary, from, to);
    };

}  // namespace cohort::batching
