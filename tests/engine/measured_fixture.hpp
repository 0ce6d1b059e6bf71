// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model of two stages for measuring in virtual time: how long each takes is told, and what it is
/// run with is remembered.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/runtime/emulated.hpp>
#include <cohort/runtime/executor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>
#include <vector>

namespace cohort::engine {

/// Stage 0 takes 1 ms and 1 ms a row, and 10 ms more with size 8; stage 1 takes 2 ms. `extra` is
/// what stage 0 of the batches of one turn takes more: turns have `batches_a_turn` batches.
struct told_model {
  struct run {
    std::uint32_t size, batch;
    std::uint32_t first_row, last_row;  ///< Inputs, as stage 0 saw them.
    bool operator==(const run&) const = default;
  };

  runtime::emulated_executor* on;
  std::size_t batches_a_turn = 1;
  std::vector<duration> extra{};
  std::vector<run> runs{};
  std::size_t enqueued = 0;

  static std::string_view name() { return "told"; }
  static std::size_t stages() { return 2; }
  static std::size_t boundary_bytes(std::size_t i) { return i == 0 ? 4 : 8; }
  void enqueue(std::size_t stage, runtime::emulated_executor::stream& s, const runtime::slice& x) {
    using namespace std::chrono_literals;
    if (stage == 1) return on->busy(s, 2ms);
    duration time = 1ms + x.count * 1ms + (x.size == 8 ? 10ms : 0ms);
    const std::size_t turn = enqueued++ / batches_a_turn;
    if (turn < extra.size()) time += extra[turn];
    on->busy(s, time);
    on->launch(s, [this, x] {
      run r{x.size, x.count, 0, 0};
      std::memcpy(&r.first_row, x.input, 4);
      std::memcpy(&r.last_row, x.input + (x.count - 1) * x.input_stride, 4);
      runs.push_back(r);
    });
  }
};
static_assert(runtime::staged_model<told_model, runtime::emulated_executor::stream>);

}  // namespace cohort::engine
