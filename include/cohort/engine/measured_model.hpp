// SPDX-License-Identifier: Apache-2.0
/// @file
/// One model with inputs and memory, run and timed batch by batch.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/stage_clock.hpp>
#include <cohort/runtime/executor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::engine {

/// How long one run took.
struct measurement {
  duration whole;                ///< From the first call to the completion.
  std::vector<duration> stages;  ///< Between the ends of the stages, on the stream.
  /// The work's own part of `whole`, without other programs on its core; all of it if unknown.
  duration busy;
};

/// A staged model with input and memory for batches up to a size, ready to run. A run copies
/// nothing: the cost of copying rows belongs to the backend. Exits are not run. Thread safety:
/// none; on a real executor runs block until the work ends.
/// @tparam Executor Must have a `stage_clock`.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model>
class measured_model {
 public:
  using stream = typename Executor::stream;

  /// @param e, m Must outlive it; m serves batches of `max_batch`.  @param rows As for
  /// `set_inputs`.
  /// @throws config_error As `set_inputs`, and if max_batch is 0.
  /// @throws resource_error If the executor lacks the memory.  @throws device_error If copying
  /// fails.
  measured_model(Executor& e, Model& m, std::uint32_t max_batch, std::span<const std::byte> rows)
      : executor_{e}, model_{m}, max_batch_{max_batch}, clock_{e, m.stages() + 1} {
    expects(max_batch > 0, "measure: max_batch must be at least 1");
    for (std::size_t i = 0; i <= stages(); ++i) {
      boundaries_.push_back(e.allocate(m.boundary_bytes(i) * max_batch));
    }
    set_inputs(rows);
  }

  [[nodiscard]] std::size_t stages() const noexcept { return model_.stages(); }

  /// Sets the inputs of later runs. @param rows Contiguous rows, each with the bytes of boundary 0;
  /// repeated if there are fewer than a batch has. Read only during the call.
  /// @throws config_error If they are not at least one whole row.
  void set_inputs(std::span<const std::byte> rows) {
    const std::size_t row = model_.boundary_bytes(0);
    if (rows.empty() || rows.size() % row != 0) {
      throw config_error{
          fmt::format("measure: inputs: got {} bytes, expected one row or more of {} bytes "
                      "each",
                      rows.size(), row)};
    }
    stream s = executor_.make_stream();
    const std::size_t all = row * max_batch_;
    for (std::size_t at = 0; at < all; at += rows.size()) {
      executor_.copy(s, {.destination = boundaries_[0].data() + at,
                         .source = rows.data(),
                         .row_bytes = std::min(rows.size(), all - at)});
    }
    finish(executor_, s);
  }

  /// Runs one batch on an idle stream, which must be destroyed before this. @param batch In 1 to
  /// `max_batch`. @param size Size of its slice.
  /// @param given_up Flag of its slices; or null.
  /// @throws config_error If batch is outside its range.  @throws device_error If the work fails.
  measurement run(stream& s, std::uint32_t batch, std::uint32_t size = 0,
                  const std::atomic<bool>* given_up = nullptr) {
    expects(batch >= 1 && batch <= max_batch_, "measure: batch must be in 1 to max_batch");
    const time_point start = detail::present(executor_);
    clock_.mark(s, 0);
    for (std::size_t i = 0; i < stages(); ++i) {
      model_.enqueue(i, s,
                     {.input = boundaries_[i].data(),
                      .output = boundaries_[i + 1].data(),
                      .input_stride = model_.boundary_bytes(i),
                      .output_stride = model_.boundary_bytes(i + 1),
                      .first = 0,
                      .count = batch,
                      .size = size,
                      .given_up = given_up});
      clock_.mark(s, i + 1);
    }
    const duration whole = finish(executor_, s) - start;
    measurement m{.whole = whole, .stages = {}, .busy = whole};
    for (std::size_t i = 0; i < stages(); ++i) m.stages.push_back(clock_.between(i, i + 1));
    // The two clocks may disagree; the work must not exceed the whole.
    if constexpr (requires { clock_.busy(); }) m.busy = std::min(whole, clock_.busy());
    return m;
  }

 private:
  Executor& executor_;
  Model& model_;
  std::uint32_t max_batch_;
  stage_clock<Executor> clock_;
  std::vector<typename Executor::buffer> boundaries_;
};

}  // namespace cohort::engine
