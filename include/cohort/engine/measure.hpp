// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures batch times of a model on an executor, and turns them into latency models.
#pragma once

#include <cohort/batching/slicer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/measured_model.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// 1, 2, 4, ... and `most`, which is at least 1.
[[nodiscard]] inline std::vector<std::uint32_t> measured_batches(std::uint32_t most) {
  std::vector<std::uint32_t> batches;
  for (std::uint64_t b = 1; b < most; b *= 2) batches.push_back(static_cast<std::uint32_t>(b));
  batches.push_back(most);
  return batches;
}

/// The upper median of an even number. @param of Not empty.
template <class T>
[[nodiscard]] T median(std::vector<T> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::ranges::nth_element(of, middle);
  return *middle;
}

/// Options of a measurement.
struct measure_options {
  std::uint32_t max_batch = 16;  ///< Batches of 1, 2, 4, ... and this; at least 1.
  int repeats = 9;               ///< Timed runs of each batch, after one to warm up; at least 1.
};

/// Inputs of a measurement.
struct sized_inputs {
  std::uint32_t size = 0;           ///< Size of the slices, as in `runtime::slice`; 0: the largest.
  std::span<const std::byte> rows;  ///< As for `measured_model::set_inputs`.
};

/// Measured times of batches of one size and number.
struct measured_batch {
  std::uint32_t size;
  std::uint32_t batch;
  duration median;               ///< Median of the whole runs.
  duration least;                ///< Shortest time of the work itself: see `measurement::busy`.
  std::vector<duration> stages;  ///< The median of each stage.
};

/// Measures batches of each size on its own stream: sizes in the order of `inputs`, batches
/// ascending. They take turns, so that a temporarily slow machine affects all equally. Uses the
/// wall clock for executors that take real time, and the executor's clock for driven ones. Takes
/// about (repeats + 1) · inputs · Σ ℓ(b), and blocks meanwhile. Thread safety: e and m are used by
/// this thread.
/// @param m Serves batches of `max_batch`.  @param inputs At least one; sizes distinct.
/// @throws config_error If an option, or an input, is outside its range.
/// @throws resource_error If the executor lacks the memory.  @throws device_error If the work
/// fails.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model>
[[nodiscard]] std::vector<measured_batch> measure(Executor& e, Model& m,
                                                  std::span<const sized_inputs> inputs,
                                                  const measure_options& o = {}) {
  expects(o.max_batch > 0 && o.repeats > 0, "measure: max_batch and repeats must be at least 1");
  expects(!inputs.empty(), "measure: inputs must not be empty");
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    expects(std::ranges::find(inputs.first(i), inputs[i].size, &sized_inputs::size) ==
                inputs.first(i).end(),
            "measure: a size must not be given twice");
  }
  measured_model<Executor, Model> model{e, m, o.max_batch, inputs.front().rows};
  typename Executor::stream stream = e.make_stream();
  const std::vector<std::uint32_t> batches = measured_batches(o.max_batch);
  std::vector<std::vector<measurement>> runs(inputs.size() * batches.size());
  for (int turn = 0; turn <= o.repeats; ++turn) {  // The first one is a warm-up.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs.size() > 1) model.set_inputs(inputs[i].rows);
      for (std::size_t k = 0; k < batches.size(); ++k) {
        measurement x = model.run(stream, batches[k], inputs[i].size);
        if (turn > 0) runs[i * batches.size() + k].push_back(std::move(x));
      }
    }
  }
  const auto median_of = [](const std::vector<measurement>& of, auto&& time) {
    std::vector<duration> times;
    for (const measurement& x : of) times.push_back(time(x));
    return median(std::move(times));
  };
  std::vector<measured_batch> out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    measured_batch b{.size = inputs[i / batches.size()].size,
                     .batch = batches[i % batches.size()],
                     .median = median_of(runs[i], [](const measurement& x) { return x.whole; }),
                     .least = std::ranges::min(runs[i], {}, &measurement::busy).busy,
                     .stages = {}};
    for (std::size_t s = 0; s < model.stages(); ++s) {
      b.stages.push_back(median_of(runs[i], [s](const measurement& x) { return x.stages[s]; }));
    }
    out.push_back(std::move(b));
  }
  return out;
}

/// Measures a model with inputs of one size. @param rows As for `set_inputs`.
template <runtime::executor Executor, runtime::staged_model<typename Executor::stream> Model>
[[nodiscard]] std::vector<measured_batch> measure(Executor& e, Model& m,
                                                  std::span<const std::byte> rows,
                                                  const measure_options& o = {}) {
  const sized_inputs one{.size = 0, .rows = rows};
  return measure(e, m, std::span{&one, 1}, o);
}

/// The medians of one size as a latency model, for `model_config`. @throws config_error If none has
/// the size.
[[nodiscard]] inline table_latency latency_of(std::span<const measured_batch> measured,
                                              std::uint32_t size = 0) {
  std::vector<latency_point> points;
  for (const measured_batch& b : measured) {
    if (b.size == size) points.push_back({b.batch, std::max(duration{1}, b.median)});
  }
  expects(!points.empty(), "latency_of: no batch of this size was measured");
  return table_latency{std::move(points)};
}

/// The medians of each stage for one size, for slicing and for planning pipelines.
/// @throws config_error If none has the size.
[[nodiscard]] inline std::vector<std::vector<batching::batch_time>> stage_times(
    std::span<const measured_batch> measured, std::uint32_t size = 0) {
  std::vector<std::vector<batching::batch_time>> out;
  for (const measured_batch& b : measured) {
    if (b.size != size) continue;
    out.resize(b.stages.size());
    for (std::size_t s = 0; s < b.stages.size(); ++s) {
      out[s].push_back({b.batch, std::max(duration{1}, b.stages[s])});
    }
  }
  expects(!out.empty(), "stage_times: no batch of this size was measured");
  return out;
}

}  // namespace cohort::engine
