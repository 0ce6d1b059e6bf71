// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface of a `stage_driver` to the program around it: the `staged_host` concept.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace cohort::batching {

/// Where a request's data lie in the host's memory, one row each.
struct staged_io {
  const std::byte* input;
  std::byte* output;
};

namespace requirement {
template <class H>
concept judges_results = requires(H& h, const staged_request& r, std::uint32_t stage) {
  { h.judges(stage) } -> std::same_as<bool>;
  { h.judge(r, stage) } -> std::same_as<verdict>;
};
}  // namespace requirement

/// The program's side of a `stage_driver`. `io(tag)` returns the rows of a request, valid until it
/// has ended; `ended(request, outcome, now)` reports its end. It may have `publish(state, value)`,
/// called on the executor's threads: stores `value` in `state`, a `std::atomic<int>&`, with release
/// order, and wakes the thread that collects. With an `exiting_model` it may have `judges(stage)`,
/// for a stage of the model, and `judge(request, stage)`: called after a stage that has an exit,
/// when the request's output row holds the exit's result. A request that leaves then has its
/// output. It may have `unfit(tag, is_known)`: the model did not compute the request because it
/// cannot compute its values or, if `is_known` is false, possibly those of another request. The
/// request's end is reported afterwards.
template <class H>
concept staged_host =
    requires(H& h, std::uint64_t tag, const staged_request& r, outcome how, time_point now) {
      { h.io(tag) } -> std::same_as<staged_io>;
      h.ended(r, how, now);
    };

}  // namespace cohort::batching
