// SPDX-License-Identifier: Apache-2.0
/// @file
/// The calls that a decode scheduler makes to its driver: `decode_sink` and its two parts.
#pragma once

#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/kv/batch/sequence.hpp>

#include <concepts>
#include <cstdint>

namespace cohort::kv {

/// Moves keys and values when slots change hands:
/// * `execute(const copy_plan&)`: runs the copies, in order, on the stream that decodes;
/// * `std::uint64_t allocate(sequence&, std::uint32_t columns)`: gives packed storage for a
///   preempted sequence, or throws a `resource_error`: then the sequence ends with `error` instead;
/// * `release(std::uint64_t storage)`: the storage is not needed once the copies so far have run.
/// It must not call back into the scheduler. Any other exception leaves the scheduler unusable:
/// report failed copies by `decode_scheduler::on_iteration_failed`.
template <class S>
concept storage_sink =
    requires(S& s, const copy_plan& p, sequence& of, std::uint32_t columns, std::uint64_t storage) {
      s.execute(p);
      { s.allocate(of, columns) } -> std::convertible_to<std::uint64_t>;
      s.release(storage);
    };

/// Receives the end of each sequence. `finish(sequence&, finish_reason)` is the final event and
/// comes exactly once for each accepted sequence, which is then idle and the caller's again. It
/// must not call back into the scheduler. An exception leaves the scheduler unusable.
template <class S>
concept finish_sink = requires(S& s, sequence& of, finish_reason why) { s.finish(of, why); };

/// Carries out what a `decode_scheduler` decides, during its calls and on their thread. Models: the
/// sinks of the simulations in `sim` and of `llama::basic_generator`.
template <class S>
concept decode_sink = storage_sink<S> && finish_sink<S>;

}  // namespace cohort::kv
