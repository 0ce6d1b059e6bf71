// SPDX-License-Identifier: Apache-2.0
/// @file
/// Keeps a running engine on a plan and, if it has a planner, on the plans that follow the load.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/plan_applier.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/plan_transition.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

namespace requirement {
template <class P>
concept has_a_period = requires(const P& p) {
  { p.period() } -> std::same_as<duration>;
};
template <class P>
concept plans_at_the_end_of_a_period = requires(P& p, std::span<const std::uint64_t> arrived,
                                                std::uint64_t n, duration lasted) {
  { p.end_period(arrived, n, n, lasted) } -> std::same_as<std::optional<packing::plan>>;
};
}  // namespace requirement

/// Makes the next plan. Semantics: `end_period(arrived, ended, violated, lasted)` is told once a
/// period how many requests arrived by model, how many ended and how many of those missed their
/// SLO, and how long the period was; it answers with the next plan, or with none. Models:
/// `packing::periodic_planner`.
template <class P>
concept plan_maker = requirement::has_a_period<P> && requirement::plans_at_the_end_of_a_period<P>;

/// Joins planner, transitions and applier into the loop that a server runs beside its engine: what
/// `sim::run_closed_loop` does in virtual time. It owns no thread and reads no clock: whoever calls
/// `advance` lends the thread on which models are loaded and plans are made. A period does not end
/// while a transition is under way: it is as much longer.
/// Thread safety: `arrived` and `ended` from any thread; the rest from one thread.
/// Complexity: `arrived` and `ended` O(1); `advance` that of the planner and the applier.
template <plan_host Host, routing Router, plan_maker Planner>
class plan_follower {
 public:
  /// @param grid, host, router Outlive the follower.
  plan_follower(const packing::latency_grid& grid, packing::transition_limits limits, Host& host,
                Router& router)
      : grid_{grid},
        limits_{limits},
        applier_{host, router},
        arrived_{std::make_unique<std::atomic<std::uint64_t>[]>(grid.models())} {}

  /// Begins to put a plan into service; `advance` carries it out. @returns The models that cannot
  /// be served meanwhile; see `packing::plan_transition`.
  /// @throws config_error If the plan exceeds the limits, or another one is on its way.
  std::vector<model_id> begin(const packing::plan& p) {
    packing::transition t = packing::plan_transition(grid_, applier_.live(), p, limits_);
    interrupted_ = t.interrupted;
    applier_.begin(std::move(t));
    ++plans_;
    return interrupted_;
  }

  /// From now on plans follow the load. @param planner Outlives the follower.
  void follow(Planner& planner, time_point now) {
    planner_ = &planner;
    period_began_ = now;
  }

  /// A request of the model came, whether or not it was taken.
  void arrived(model_id m) noexcept { arrived_[m.index()].fetch_add(1, std::memory_order_relaxed); }
  /// An accepted request ended. @param in_time Whether it met its SLO.
  void ended(bool in_time) noexcept {
    ended_.fetch_add(1, std::memory_order_relaxed);
    if (!in_time) violated_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Does all that is due. What host or planner throw goes through; the next call tries again.
  /// @returns When to call again: `now` while a step waits for something, `never` without planner.
  time_point advance(time_point now) {
    if (!applier_.advance()) return now;
    if (planner_ == nullptr) return never;
    if (now < period_began_ + planner_->period()) return period_began_ + planner_->period();
    const duration lasted = now - std::exchange(period_began_, now);
    std::vector<std::uint64_t> counts;
    for (std::size_t m = 0; m < grid_.models(); ++m) {
      counts.push_back(arrived_[m].exchange(0, std::memory_order_relaxed));
    }
    const std::uint64_t violated = violated_.exchange(0, std::memory_order_relaxed);
    // Read behind the violated ones, it counts each of them.
    const std::uint64_t ended = ended_.exchange(0, std::memory_order_relaxed);
    const auto next = planner_->end_period(counts, std::max(ended, violated), violated, lasted);
    // Where nothing can be planned for, what is in service is better than nothing.
    if (next && (!next->empty() || live().empty())) {
      begin(*next);
      if (!applier_.advance()) return now;
    }
    return now + planner_->period();
  }

  /// Whether the plan that was begun last is in service.
  [[nodiscard]] bool is_idle() const noexcept { return applier_.is_idle(); }
  /// What is in service; while not idle, what will be.
  [[nodiscard]] const std::vector<packing::live_gpulet>& live() const noexcept {
    return applier_.live();
  }
  /// Models that the plan that was begun last could not keep served on the way.
  [[nodiscard]] const std::vector<model_id>& interrupted() const noexcept { return interrupted_; }
  /// Plans that were begun.
  [[nodiscard]] std::uint64_t plans() const noexcept { return plans_; }

 private:
  const packing::latency_grid& grid_;
  packing::transition_limits limits_;
  plan_applier<Host, Router> applier_;
  Planner* planner_ = nullptr;
  time_point period_began_{};
  std::vector<model_id> interrupted_;
  std::uint64_t plans_ = 0;
  std::unique_ptr<std::atomic<std::uint64_t>[]> arrived_;  // By model, in this period.
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> violated_{0};
};

}  // namespace cohort::engine
