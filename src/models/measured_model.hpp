// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures times of the example models' stages on an executor.
#pragma once

#include <cohort/batching/slicer.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/measure.hpp>
#include <cohort/engine/measured_model.hpp>
#include <cohort/engine/stage_clock.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measure_rows.hpp"
#include "registry.hpp"
#include "run_stop.hpp"
#include "timed_model.hpp"

namespace cohort::models {

/// Contiguous rows for batches of up to `count`, drawn from the seeds `seed`, `seed` + 1, ...
[[nodiscard]] inline std::vector<std::byte> sample_rows(const model_interface& info,
                                                        std::uint32_t count, std::uint64_t seed) {
  std::vector<std::byte> rows;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::vector<std::byte> row = sample_input(info, seed + i);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

/// An instance of an example model with samples as its input, ready to run. Thread safety: none.
template <class Executor>
class measured_model {
 public:
  /// @param stop Must outlive it; ends its runs early. Or null.
  measured_model(Executor& e, any_model_factory<Executor>& factory, std::uint32_t max_batch,
                 std::uint64_t seed, run_stop* stop = nullptr)
      : model_{factory.make(max_batch)},
        measured_{e, *model_, max_batch, sample_rows(factory.info(), max_batch, seed)},
        given_up_{stop == nullptr ? nullptr : stop->given_up()},
        watch_{stop, [this] { model_->interrupt(); }} {}

  [[nodiscard]] std::size_t stages() const noexcept { return measured_.stages(); }
  /// Like `engine::measured_model::run`.
  engine::measurement run(typename Executor::stream& s, std::uint32_t batch) {
    return measured_.run(s, batch, 0, given_up_);
  }

 private:
  std::unique_ptr<any_model<Executor>> model_;
  engine::measured_model<Executor, any_model<Executor>> measured_;
  const std::atomic<bool>* given_up_;
  run_stop::watch watch_;  // Destroyed before what it interrupts.
};

/// `engine::measure` for an example model on samples. @param size Padded size of inputs; 0: the
/// largest.
template <class Executor>
[[nodiscard]] std::vector<engine::measured_batch> measure(any_model_factory<Executor>& f,
                                                          Executor& e,
                                                          const engine::measure_options& o,
                                                          std::uint32_t size = 0) {
  const auto model = f.make(o.max_batch);
  const std::vector<std::byte> rows = sample_rows(f.info(), o.max_batch, 0);
  const engine::sized_inputs inputs{.size = size, .rows = rows};
  return engine::measure(e, *model, std::span{&inputs, 1}, o);
}

/// Median times of each operator of a model for batches of 1, 2, 4, ... and `max_batch`, with
/// inputs padded to `size`, for the slicer. @param repeats At least 1.
template <class Executor>
[[nodiscard]] std::vector<std::vector<batching::batch_time>> measure_operators(
    any_model_factory<Executor>& f, Executor& e, std::uint32_t max_batch, std::uint32_t size,
    int repeats) {
  return engine::stage_times(measure(f, e, {.max_batch = max_batch, .repeats = repeats}, size),
                             size);
}

/// A measured model with its executor and streams.
template <class Executor, class MakeFactory>
class timed_model_on final : public timed_model {
 public:
  /// @param make `make(executor, plan)` returns the factory.
  timed_model_on(std::unique_ptr<Executor> e, const timing_plan& p, std::string device,
                 std::size_t cache_bytes, MakeFactory make)
      : executor_{std::move(e)}, device_{std::move(device)}, cache_bytes_{cache_bytes} {
    const std::size_t room = executor_->free_bytes();
    factory_ = make(*executor_, p);
    model_ = std::make_unique<measured_model<Executor>>(*executor_, *factory_, p.max_batch, p.seed);
    memory_ = room - executor_->free_bytes();
    for (const device_share share : p.shares) streams_.push_back(executor_->make_stream(share));
  }
  [[nodiscard]] std::size_t stages() const noexcept override { return model_->stages(); }
  [[nodiscard]] std::size_t memory_bytes() const noexcept override { return memory_; }
  [[nodiscard]] std::string device() const override { return device_; }
  [[nodiscard]] std::string partition(std::size_t share) const override {
    return describe(streams_.at(share));
  }
  [[nodiscard]] std::size_t cache_bytes() const noexcept override { return cache_bytes_; }
  [[nodiscard]] double copy_rate(std::size_t bytes) override {
    bytes = std::min(bytes, executor_->free_bytes() / 3);
    const auto from = executor_->allocate(bytes);
    const auto to = executor_->allocate(bytes);
    typename Executor::stream s = executor_->make_stream();
    engine::stage_clock<Executor> clock{*executor_, 2};
    constexpr int copies = 8;
    double best_ms = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) {
      clock.mark(s, 0);
      for (int c = 0; c < copies; ++c) {
        executor_->copy(s, {.destination = to.data(), .source = from.data(), .row_bytes = bytes});
      }
      clock.mark(s, 1);
      engine::finish(*executor_, s);
      if (i > 0) best_ms = std::min(best_ms, to_ms(clock.between(0, 1)));  // After a warm-up.
    }
    return 2.0 * copies * static_cast<double>(bytes) / (best_ms / 1e3);
  }
  [[nodiscard]] row_cost rows(std::uint32_t max_batch) override {
    return measure_rows(*factory_, *executor_, max_batch, 101);
  }
  engine::measurement run(std::size_t share, std::uint32_t batch) override {
    return model_->run(streams_.at(share), batch);
  }

 private:
  static std::string describe(const typename Executor::stream& s) {
    if constexpr (requires { s.multiprocessors(); }) {
      return std::to_string(s.multiprocessors()) + " SMs";
    } else {
      return std::to_string(s.cores()) + " cores";
    }
  }

  std::unique_ptr<Executor> executor_;
  std::string device_;
  std::size_t cache_bytes_;
  std::unique_ptr<any_model_factory<Executor>> factory_;
  std::unique_ptr<measured_model<Executor>> model_;
  std::vector<typename Executor::stream> streams_;  // After the model, so destroyed first.
  std::size_t memory_ = 0;
};

}  // namespace cohort::models
