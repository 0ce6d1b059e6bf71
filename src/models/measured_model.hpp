// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measuring how long the stages of a model run on an executor.
#pragma once

#include <cohort/batching/slicer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "measure_rows.hpp"
#include "medians.hpp"
#include "registry.hpp"
#include "timed_model.hpp"

namespace cohort::models {

/// Tells when a stream reached each of a number of marks. Specialised for each executor.
template <class Executor>
class stage_clock;

template <>
class stage_clock<runtime::host_executor> {
 public:
  stage_clock(runtime::host_executor& e, std::size_t marks) : executor_{e}, at_(marks) {}
  void mark(runtime::host_executor::stream& s, std::size_t i) {
    if (i == 0) {
      executor_.launch(s, [this]() noexcept { first_cpu_ms_ = thread_cpu_ms(); });
    }
    executor_.launch(s, [at = &at_[i]]() noexcept { *at = std::chrono::steady_clock::now(); });
    if (i + 1 == at_.size()) {
      executor_.launch(s, [this]() noexcept { last_cpu_ms_ = thread_cpu_ms(); });
    }
  }
  /// CPU time of the stream's thread from the first mark to the last.
  [[nodiscard]] double busy_ms() const noexcept { return last_cpu_ms_ - first_cpu_ms_; }
  /// Once the stream has passed both.
  [[nodiscard]] double ms_between(std::size_t i, std::size_t j) const {
    return std::chrono::duration<double, std::milli>(at_[j] - at_[i]).count();
  }

 private:
  static double thread_cpu_ms() noexcept {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
  }

  runtime::host_executor& executor_;
  std::vector<std::chrono::steady_clock::time_point> at_;
  double first_cpu_ms_ = 0;
  double last_cpu_ms_ = 0;
};

/// A completion to wait for.
struct awaited : runtime::completion {
  awaited() { invoke = &tell; }

  static void tell(runtime::completion& self, bool failed) noexcept {
    auto& d = static_cast<awaited&>(self);
    const auto now = std::chrono::steady_clock::now();
    // Told under the lock: the waiter destroys this as soon as it can take it.
    const std::lock_guard lock{d.mutex};
    d.at = now;
    d.failed = failed;
    d.over = true;
    d.changed.notify_one();
  }
  std::chrono::steady_clock::time_point wait() {
    std::unique_lock lock{mutex};
    changed.wait(lock, [this] { return over; });
    if (failed) throw device_error{"measured_model: work failed on the executor"};
    return at;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::chrono::steady_clock::time_point at;
  bool failed = false;
  bool over = false;
};

/// Waits for the work on a stream. @throws device_error If it fails.
template <class Executor>
std::chrono::steady_clock::time_point finish(Executor& e, typename Executor::stream& s) {
  awaited a;
  e.notify(s, a);
  return a.wait();
}

/// A model with input and memory for batches up to a size, ready to run. Thread safety: none.
template <class Executor>
class measured_model {
 public:
  using stream = typename Executor::stream;

  measured_model(Executor& e, any_model_factory<Executor>& factory, std::uint32_t max_batch,
                 std::uint64_t seed)
      : executor_{e}, model_{factory.make(max_batch)}, clock_{e, model_->stages() + 1} {
    for (std::size_t i = 0; i <= model_->stages(); ++i) {
      boundaries_.push_back(e.allocate(model_->boundary_bytes(i) * max_batch));
    }
    stream s = e.make_stream();
    for (std::uint32_t row = 0; row < max_batch; ++row) {
      const std::vector<std::byte> input = sample_input(factory.info(), seed + row);
      e.copy(s, {.destination = boundaries_[0].data() + row * input.size(),
                 .source = input.data(),
                 .row_bytes = input.size()});
      finish(e, s);
    }
  }

  [[nodiscard]] std::size_t stages() const noexcept { return model_->stages(); }

  /// Runs one batch on an idle stream. @param size Of its slice. @throws device_error If the work
  /// fails.
  measurement run(stream& s, std::uint32_t batch, std::uint32_t size = 0) {
    const auto start = std::chrono::steady_clock::now();
    clock_.mark(s, 0);
    for (std::size_t i = 0; i < stages(); ++i) {
      model_->enqueue(i, s,
                      {.input = boundaries_[i].data(),
                       .output = boundaries_[i + 1].data(),
                       .input_stride = model_->boundary_bytes(i),
                       .output_stride = model_->boundary_bytes(i + 1),
                       .first = 0,
                       .count = batch,
                       .size = size});
      clock_.mark(s, i + 1);
    }
    const std::chrono::duration<double, std::milli> whole = finish(executor_, s) - start;
    measurement m{.whole_ms = whole.count(), .stages_ms = {}, .busy_ms = whole.count()};
    for (std::size_t i = 0; i < stages(); ++i) m.stages_ms.push_back(clock_.ms_between(i, i + 1));
    // Two clocks: what they disagree by must not make more of the work than of all.
    if constexpr (requires { clock_.busy_ms(); })
      m.busy_ms = std::min(whole.count(), clock_.busy_ms());
    return m;
  }

 private:
  Executor& executor_;
  std::unique_ptr<any_model<Executor>> model_;
  stage_clock<Executor> clock_;
  std::vector<typename Executor::buffer> boundaries_;
};

/// How to measure.
struct measure_options {
  std::uint32_t max_batch = 16;  ///< Sizes: 1, 2, 4, ... and this; at least 1.
  int repeats = 9;               ///< Timed runs of each size, after one to warm up; at least 1.
};

/// How long batches of one size took.
struct measured_latency {
  std::uint32_t batch;
  duration median;  ///< Of the whole runs.
  duration least;   ///< Of the work itself: see `measurement::busy_ms`.
};

/// The latency of each batch size, on a stream of its own. The sizes are measured in turns: a
/// machine that is slower for a while is so for all.
template <class Executor>
[[nodiscard]] std::vector<measured_latency> measure(any_model_factory<Executor>& f, Executor& e,
                                                    const measure_options& o) {
  expects(o.max_batch > 0 && o.repeats > 0, "measure: max_batch and repeats must be at least 1");
  measured_model<Executor> model{e, f, o.max_batch, 0};
  typename Executor::stream stream = e.make_stream();
  const std::vector<std::uint32_t> sizes = measured_sizes(o.max_batch);
  for (const std::uint32_t b : sizes) (void)model.run(stream, b);  // Warm.
  std::vector<std::vector<double>> ms(sizes.size());
  std::vector<double> least(sizes.size(), std::numeric_limits<double>::infinity());
  for (int i = 0; i < o.repeats; ++i) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const measurement m = model.run(stream, sizes[k]);
      ms[k].push_back(m.whole_ms);
      least[k] = std::min(least[k], m.busy_ms);
    }
  }
  std::vector<measured_latency> all;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    all.push_back({sizes[k], from_ms(median(std::move(ms[k]))), from_ms(least[k])});
  }
  return all;
}

/// Median times of each operator of a model for batches of 1, 2, 4, ... and `max_batch`, with
/// inputs padded to `size`: what the slicer cuts by. In turns, as `measure`. @param repeats At
/// least 1.
template <class Executor>
[[nodiscard]] std::vector<std::vector<batching::batch_time>> measure_operators(
    any_model_factory<Executor>& f, Executor& e, std::uint32_t max_batch, std::uint32_t size,
    int repeats) {
  measured_model<Executor> model{e, f, max_batch, 0};
  typename Executor::stream stream = e.make_stream();
  const std::vector<std::uint32_t> sizes = measured_sizes(max_batch);
  for (const std::uint32_t b : sizes) (void)model.run(stream, b, size);  // Warm.
  std::vector<std::vector<std::vector<double>>> ms(                      // By operator and batch.
      model.stages(), std::vector<std::vector<double>>(sizes.size()));
  for (int i = 0; i < repeats; ++i) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const measurement m = model.run(stream, sizes[k], size);
      for (std::size_t s = 0; s < ms.size(); ++s) ms[s][k].push_back(m.stages_ms[s]);
    }
  }
  std::vector<std::vector<batching::batch_time>> operators(ms.size());
  for (std::size_t s = 0; s < ms.size(); ++s) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      operators[s].push_back(
          {sizes[k], std::max(duration{1}, from_ms(median(std::move(ms[s][k]))))});
    }
  }
  return operators;
}

/// A measured model with the executor and the streams it runs on.
template <class Executor, class MakeFactory>
class timed_model_on final : public timed_model {
 public:
  /// @param make `make(executor, plan)` gives the factory.
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
    stage_clock<Executor> clock{*executor_, 2};
    constexpr int copies = 8;
    double best_ms = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 5; ++i) {
      clock.mark(s, 0);
      for (int c = 0; c < copies; ++c) {
        executor_->copy(s, {.destination = to.data(), .source = from.data(), .row_bytes = bytes});
      }
      clock.mark(s, 1);
      finish(*executor_, s);
      if (i > 0) best_ms = std::min(best_ms, clock.ms_between(0, 1));  // The first one warms.
    }
    return 2.0 * copies * static_cast<double>(bytes) / (best_ms / 1e3);
  }
  [[nodiscard]] row_cost rows(std::uint32_t max_batch) override {
    return measure_rows(*factory_, *executor_, max_batch, 101);
  }
  measurement run(std::size_t share, std::uint32_t batch) override {
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
  std::vector<typename Executor::stream> streams_;  // Behind the model: destroyed first.
  std::size_t memory_ = 0;
};

}  // namespace cohort::models
