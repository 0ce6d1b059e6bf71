// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the cost of a pipeline's rows on an executor beside their stages.
#pragma once

#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/slicer.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/measure.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/sim/rivals/staged_rivals.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "registry.hpp"
#include "row_cost.hpp"

namespace cohort::models {

/// A model with a few empty stages. Models: `staged_model`.
template <class Stream>
struct empty_model {
  std::size_t input_bytes;
  std::size_t output_bytes;

  [[nodiscard]] std::string_view name() const noexcept { return "empty"; }
  [[nodiscard]] std::size_t stages() const noexcept { return 4; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept {
    if (i == 0) return input_bytes;
    return i == stages() ? output_bytes : 1;
  }
  void enqueue(std::size_t, Stream&, const runtime::slice&) const noexcept {}
};

/// Host memory for rows, pinned if the executor has such: copies then do not block.
template <class Executor>
[[nodiscard]] auto host_memory(Executor& e, std::size_t bytes) {
  if constexpr (requires { e.allocate_pinned(bytes); }) {
    return e.allocate_pinned(bytes);
  } else {
    return std::vector<std::byte>(bytes);
  }
}

namespace detail {

/// One row at a time through an `empty_model`, timed by the wall clock.
template <runtime::executor Executor>
class row_timer {
 public:
  row_timer(Executor& e, std::size_t input_bytes, std::size_t output_bytes, std::uint32_t batch_max)
      : model_{input_bytes, output_bytes},
        memory_{host_memory(e, (input_bytes + output_bytes) * batch_max)},
        host_{reinterpret_cast<std::byte*>(memory_.data()),
              reinterpret_cast<std::byte*>(memory_.data()) + input_bytes * batch_max, input_bytes,
              output_bytes},
        driver_{e, std::vector<model*>(model_.stages(), &model_), host_, 1, 2, batch_max},
        profile_{std::vector<std::vector<batching::stage_point>>(driver_.stages(),
                                                                 {{.batch = batch_max}}),
                 batch_max},
        requests_(batch_max) {
    for (std::uint32_t i = 0; i < batch_max; ++i) requests_[i].tag = i;
  }

  /// Number of completions of items so far.
  [[nodiscard]] std::uint64_t completions() const noexcept { return driver_.completions(); }
  /// Time in one item.
  duration time_through(std::uint32_t batch) { return time(sim::whole_batch{{batch}}, batch); }
  /// Time of one request in `items()`.
  duration time_stepped() { return time(batching::plain_policy{}, 1); }
  [[nodiscard]] std::uint32_t items() const noexcept { return driver_.stages(); }

 private:
  using model = empty_model<typename Executor::stream>;
  struct program {
    std::byte* input;
    std::byte* output;
    std::size_t input_bytes;
    std::size_t output_bytes;
    bool failed = false;

    [[nodiscard]] batching::staged_io io(std::uint64_t tag) const noexcept {
      return {input + tag * input_bytes, output + tag * output_bytes};
    }
    void ended(const batching::staged_request&, outcome how, time_point) noexcept {
      failed |= how != outcome::completed;
    }
  };

  template <class Policy>
  duration time(const Policy& policy, std::uint32_t batch) {
    batching::pipeline<Policy> p{profile_, {.entry = batching::entry_rule::idle}, policy};
    const auto begin = std::chrono::steady_clock::now();
    p.on_arrival(std::span{requests_}.first(batch), time_point{});
    p.advance(time_point{}, driver_);
    while (!p.is_idle()) {
      const std::uint64_t seen = driver_.completions();
      if (!driver_.collect(p, time_point{})) driver_.wait_for_completion(seen);
      p.advance(time_point{}, driver_);
    }
    const duration took = std::chrono::steady_clock::now() - begin;
    if (host_.failed) throw device_error{"measure_rows: work failed on the executor"};
    return took;
  }

  model model_;
  decltype(host_memory(std::declval<Executor&>(), 0)) memory_;
  program host_;
  batching::stage_driver<Executor, model, program> driver_;
  batching::stage_profile profile_;
  std::vector<batching::staged_request> requests_;
};

}  // namespace detail

/// Medians over single rows through empty stages, in one item and in many, in turns.
/// @param f Its inputs and outputs are copied.  @param repeats Rows of each kind; at least 1.
/// @throws config_error If a number is below 1.  @throws resource_error If the executor lacks the
/// memory.  @throws device_error If the work fails.
template <runtime::executor Executor>
[[nodiscard]] row_cost measure_rows(any_model_factory<Executor>& f, Executor& e,
                                    std::uint32_t batch_max, int repeats) {
  expects(batch_max > 0 && repeats > 0, "measure_rows: batch_max and repeats must be at least 1");
  const auto real = f.make(1);
  detail::row_timer<Executor> timer{e, real->boundary_bytes(0),
                                    real->boundary_bytes(real->stages()), batch_max};
  const std::vector<std::uint32_t> sizes = engine::measured_batches(batch_max);
  std::vector<std::vector<duration>> through(sizes.size());
  std::vector<duration> stepped;
  (void)timer.time_through(1);  // Warm-up.
  (void)timer.time_stepped();
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      through[k].push_back(timer.time_through(sizes[k]));
    }
    stepped.push_back(timer.time_stepped());
  }
  row_cost out;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    out.rows.push_back({sizes[k], engine::median(std::move(through[k]))});
  }
  const duration more = engine::median(std::move(stepped)) - out.rows.front().time;
  out.hand_over = std::max(duration{0}, more / (timer.items() - 1));
  out.rows = batching::monotone(std::move(out.rows));
  return out;
}

}  // namespace cohort::models
