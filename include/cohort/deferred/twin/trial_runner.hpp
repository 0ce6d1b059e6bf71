// SPDX-License-Identifier: Apache-2.0
/// @file
/// Who runs trials: the `trial_runner` concept and its model `inline_trials`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/twin/settings.hpp>
#include <cohort/deferred/twin/trial.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// One round of trials: all that it needs, and its answer. Whoever runs it has it for himself.
struct tuning_job {
  explicit tuning_job(const network_delays& delays) : known{make_adaptive_scheduler(delays)} {
    start.delays = delays;
  }

  /// The models that are tried, by id; `known` has them without their queues. Not while it runs.
  void set_models(const std::vector<std::optional<model_config>>& models) {
    start.models = models;
    for (auto& m : start.models) {
      if (m) m->queue_capacity = std::min(m->queue_capacity, 4096U);
    }
    std::vector<std::optional<model_config>> mirrors = models;
    for (auto& m : mirrors) {
      if (m) m->queue_capacity = 1;
    }
    known = make_adaptive_scheduler(start.delays);
    add_models(known, mirrors, start.delays, start.now);
  }
  /// From now on it is tried by `step`. Forgets earlier results.
  void begin() noexcept {
    bench.abandon();
    results.clear();
    next = 0;
  }
  /// Goes on for so many instants of a trial at most. @returns Whether all has been tried; out of
  /// memory, too, then without results.
  bool step(std::size_t instants) noexcept {
    try {
      if (next < tried.size()) {
        if (!bench.is_running()) bench.begin(start, known, tried[next]);
        if (bench.step(instants)) {
          results.push_back(bench.take_result());
          ++next;
        }
      }
      return next >= tried.size();
    } catch (const std::bad_alloc&) {
      abandon();
      return true;
    }
  }
  /// Ends it without results.
  void abandon() noexcept {
    begin();
    next = tried.size();
  }
  /// Tries all of it, unless told to `stop` from another thread: then there are no results.
  void run(const std::atomic<bool>* stop = nullptr) noexcept {
    begin();
    do {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) return abandon();
    } while (!step(1024));
  }

  trial_start start;
  adaptive_scheduler known;  ///< What the running scheduler has measured.
  std::vector<settings> tried;
  std::vector<trial_result> results;  ///< In their order.
  std::uint64_t arrived = 0;          ///< Requests ever, when it was made.
  duration cost{0};                   ///< CPU time of the last run, if its runner measures that.
  std::size_t next = 0;               ///< Of those that are tried.
  trial bench;
};

/// Runs rounds of trials, one at a time: `start(job)` begins with one; `is_done()`: nobody is at
/// work on it any more, and its results are there; `cancel()`: they are not wanted, so it may be
/// done soon, without them. None of these waits; destroying a runner does, until nobody is at work.
/// One that has `work(now)` is given a moment in each `advance` of the scheduler while it is not
/// done. Called on one thread. Models: `inline_trials`, `sliced_trials`, `engine::trial_thread`.
template <class R>
concept trial_runner = std::move_constructible<R> && requires(R& r, tuning_job& j) {
  { r.start(j) } noexcept;
  { r.cancel() } noexcept;
} && requires(const R& r) {
  { r.is_done() } noexcept -> std::same_as<bool>;
};

/// Runs them at once, on the thread that starts them: for virtual time.
struct inline_trials {
  static void start(tuning_job& j) noexcept { j.run(); }
  static bool is_done() noexcept { return true; }
  static void cancel() noexcept {}
};
static_assert(trial_runner<inline_trials>);

/// Runs them on the thread that starts them, a little in each `advance` of the scheduler: for a
/// loop that serves by the clock and has no thread to spare. It takes about a twentieth of a core,
/// and about a quarter millisecond at a time at most, where an instant of a trial takes a
/// microsecond. Deterministic.
class sliced_trials {
 public:
  void start(tuning_job& j) noexcept {
    j.begin();
    job_ = &j;
    last_ = never;
  }
  [[nodiscard]] bool is_done() const noexcept { return job_ == nullptr; }
  void cancel() noexcept {
    if (job_ != nullptr) job_->abandon();
    job_ = nullptr;
  }
  void work(time_point now) noexcept {
    if (last_ != never) credit_ += to_seconds(now - last_) * instants_per_second;
    last_ = now;
    if (credit_ < least) return;
    const auto instants = static_cast<std::size_t>(std::min(credit_, most));
    credit_ = 0;  // What is beyond the most is lost: nobody is to wait for it later.
    if (job_->step(instants)) job_ = nullptr;
  }

 private:
  static constexpr double instants_per_second = 50'000;
  static constexpr double least = 16;
  static constexpr double most = 256;

  tuning_job* job_ = nullptr;
  time_point last_ = never;  // When it was called.
  double credit_ = 0;        // Instants that it may run.
};
static_assert(trial_runner<sliced_trials>);

}  // namespace cohort::deferred
