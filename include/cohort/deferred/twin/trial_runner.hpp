// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs trials: the `trial_runner` concept and its model `inline_trials`.
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

/// One round of trials: all its inputs and results. While it runs, only its runner may use it.
struct tuning_job {
  explicit tuning_job(const network_delays& delays) : known{make_adaptive_scheduler(delays)} {
    start.delays = delays;
  }

  /// Sets the models to try, by id; `known` gets them without their queues. Not during a run.
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
  /// Starts a round, which `step` carries out. Discards earlier results.
  void begin() noexcept {
    bench.abandon();
    results.clear();
    next = 0;
  }
  /// Continues for at most this many instants of a trial. @returns Whether the round is over, also
  /// if memory ran out, then without results.
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
  /// Ends the round without results.
  void abandon() noexcept {
    begin();
    next = tried.size();
  }
  /// Does the whole round. If another thread sets `stop`, it ends without results.
  void run(const std::atomic<bool>* stop = nullptr) noexcept {
    begin();
    do {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) return abandon();
    } while (!step(1024));
  }

  trial_start start;
  adaptive_scheduler known;  ///< The running scheduler's measurements.
  std::vector<settings> tried;
  std::vector<trial_result> results;  ///< In the order of the settings.
  std::uint64_t arrived = 0;          ///< Requests in total when it was made.
  duration cost{0};                   ///< CPU time of the last run, if its runner measures that.
  std::size_t next = 0;               ///< Index of the settings that are tried.
  trial bench;
};

/// Runs rounds of trials, one at a time. `start(job)` begins a round. `is_done()`: no thread works
/// on it any more, and its results are there. `cancel()`: the results are not needed, so it may end
/// early without them. None of these blocks; a runner's destructor waits until no thread is at
/// work. A runner with `work(now)` gets some time in each `advance` of the scheduler until it is
/// done. Called on one thread. Models: `inline_trials`, `sliced_trials`, `engine::trial_thread`.
template <class R>
concept trial_runner = std::move_constructible<R> && requires(R& r, tuning_job& j) {
  { r.start(j) } noexcept;
  { r.cancel() } noexcept;
} && requires(const R& r) {
  { r.is_done() } noexcept -> std::same_as<bool>;
};

/// Runs rounds at once, on the thread that starts them: for virtual time.
struct inline_trials {
  static void start(tuning_job& j) noexcept { j.run(); }
  static bool is_done() noexcept { return true; }
  static void cancel() noexcept {}
};
static_assert(trial_runner<inline_trials>);

/// Runs rounds on the thread that starts them, a little in each `advance` of the scheduler: for a
/// real-time loop without a thread to spare. It uses about 5 % of a core, and at most about a
/// quarter millisecond at a time if an instant of a trial takes a microsecond. Deterministic.
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
    credit_ = 0;  // Credit above the maximum is lost, to bound the work at one time.
    if (job_->step(instants)) job_ = nullptr;
  }

 private:
  static constexpr double instants_per_second = 50'000;
  static constexpr double least = 16;
  static constexpr double most = 256;

  tuning_job* job_ = nullptr;
  time_point last_ = never;  // Time of the last call.
  double credit_ = 0;        // Instants that it may run.
};
static_assert(trial_runner<sliced_trials>);

}  // namespace cohort::deferred
