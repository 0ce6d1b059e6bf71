// SPDX-License-Identifier: Apache-2.0
/// @file
/// Keeps a running engine on a plan and, with a planner, on plans that follow the load.
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
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Makes the next plan. Semantics: `end_period(arrived, ended, violated, lasted)` is called once a
/// period with the requests that arrived by model, the number that ended and that missed their SLO,
/// and the length of the period; it returns the next plan, or none. `plan_on(gpus)` makes a plan
/// for that many GPUs, as its later plans are; empty if none is left. Models:
/// `packing::periodic_planner`.
template <class P>
concept plan_maker =
    requires(const P& p) {
      { p.period() } -> std::same_as<duration>;
    } && requires(P& p, std::span<const std::uint64_t> arrived, std::uint64_t n, duration lasted,
                  std::uint32_t gpus) {
      { p.end_period(arrived, n, n, lasted) } -> std::same_as<std::optional<packing::plan>>;
      { p.plan_on(gpus) } -> std::same_as<packing::plan>;
    };

/// Options of following a plan.
struct follower_options {
  duration look = std::chrono::milliseconds{100};       ///< Between checks for outages; above 0.
  duration longest_warm_up = std::chrono::seconds{10};  ///< As `plan_applier`.
};

/// Joins planner, transitions and applier into the loop that a server runs beside its engine:
/// `sim::run_closed_loop` does the same in virtual time. It owns no thread and reads no clock:
/// models are loaded and plans are made on the thread that calls `advance`. A period is extended
/// until a transition in progress has ended.
///
/// A GPU with a partition that is out is left unchanged (`plan_applier`) and not planned on. With a
/// planner, a plan for the remaining GPUs is made at once. A recovered GPU counts again only from
/// the end of the period, so that an intermittent one does not cause a transition each time.
/// Without a planner the plan stays; its parts not yet in service follow where possible, and on
/// that GPU when it is back. Thread safety: `arrived` and `ended` from any thread; the rest from
/// one thread. Complexity: `arrived` and `ended` O(1); `advance` that of planner and applier.
template <plan_host Host, routing Router, plan_maker Planner>
class plan_follower {
 public:
  /// @param grid, host, router Must outlive the follower. @param limits GPUs set aside there are
  /// not used.
  /// @throws config_error If an option is out of its range.
  plan_follower(const packing::latency_grid& grid, packing::transition_limits limits, Host& host,
                Router& router, follower_options o = {})
      : grid_{grid},
        limits_{std::move(limits)},
        look_{o.look},
        planned_gpus_{limits_.gpus},
        applier_{host, router, o.longest_warm_up},
        arrived_{std::make_unique<std::atomic<std::uint64_t>[]>(grid.models())} {
    expects(o.look > duration{0}, "plan_follower: look must be above 0");
  }

  /// Begins to put a plan into service; `advance` carries it out. @returns The models that cannot
  /// be served meanwhile; see `packing::plan_transition`.
  /// @throws config_error If the plan exceeds the limits, or another one is in progress.
  std::vector<model_id> begin(const packing::plan& p) {
    go_to(p);
    ++plans_;
    return interrupted_;
  }

  /// Starts to follow the load. @param planner Plans on all GPUs; must outlive the follower.
  void follow(Planner& planner, time_point now) {
    planner_ = &planner;
    period_began_ = now;
  }

  /// Counts an arrived request of the model, whether or not it was accepted.
  void arrived(model_id m) noexcept { arrived_[m.index()].fetch_add(1, std::memory_order_relaxed); }
  /// Counts the end of an accepted request. @param in_time Whether it met its SLO.
  void ended(bool in_time) noexcept {
    ended_.fetch_add(1, std::memory_order_relaxed);
    if (!in_time) violated_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Does everything that is due. Exceptions of host or planner pass through; the next call tries
  /// again.
  /// @returns When to call again: `now` while a step waits for something.
  time_point advance(time_point now) {
    for (;;) {
      if (!applier_.advance(now)) return now;
      if (!go_round()) break;
    }
    if (planner_ == nullptr) {
      if (applier_.take_back() && !is_whole_) go_to(plan_);
      return is_idle() ? now + look_ : now;
    }
    const time_point end = period_began_ + planner_->period();
    if (now < end) return std::min(end, now + look_);
    end_period(now);
    return applier_.advance(now) ? now + std::min(look_, planner_->period()) : now;
  }

  /// Whether the latest plan is in service, except on GPUs that are set aside.
  [[nodiscard]] bool is_idle() const noexcept { return applier_.is_idle() && !applier_.was_cut(); }
  /// All partitions in their present state.
  [[nodiscard]] std::vector<packing::live_gpulet> live() const { return applier_.live(); }
  /// GPUs that plans do not use, because a partition there is out, or was in this period.
  [[nodiscard]] const std::vector<device_id>& set_aside() const noexcept {
    return applier_.set_aside();
  }
  /// Partitions that are out.
  [[nodiscard]] std::vector<sick_partition> sick() const { return applier_.sick(); }
  /// Models that the latest plan could not keep in service during its transition.
  [[nodiscard]] const std::vector<model_id>& interrupted() const noexcept { return interrupted_; }
  /// Number of plans begun.
  [[nodiscard]] std::uint64_t plans() const noexcept { return plans_; }

 private:
  /// Begins the transition from the present state to a plan.
  void go_to(const packing::plan& p) {
    packing::transition_limits limits = limits_;
    limits.set_aside = applier_.set_aside();
    packing::transition t = packing::plan_transition(grid_, applier_.live(), p, limits);
    std::vector<model_id> interrupted = t.interrupted;
    packing::plan wanted = p;
    applier_.begin(std::move(t));
    interrupted_ = std::move(interrupted);
    plan_ = std::move(wanted);
    is_whole_ = limits.set_aside.empty();
  }
  [[nodiscard]] std::uint32_t usable_gpus() const noexcept {
    return limits_.gpus - static_cast<std::uint32_t>(applier_.set_aside().size());
  }

  [[nodiscard]] packing::plan plan_on_usable() {
    packing::plan p = planner_->plan_on(usable_gpus());
    planned_gpus_ = usable_gpus();
    return p;
  }

  /// Continues without the GPUs newly set aside. @returns Whether there is something to do.
  bool go_round() {
    if (planner_ != nullptr && usable_gpus() < planned_gpus_ && take(plan_on_usable())) {
      return true;
    }
    if (!applier_.was_cut()) return false;
    go_to(plan_);
    return true;
  }
  /// @returns Whether the plan was begun. If no plan is possible, the present one stays.
  bool take(const packing::plan& p) {
    if (p.empty() && !applier_.live().empty()) return false;
    begin(p);
    return true;
  }

  void end_period(time_point now) {
    const duration lasted = now - std::exchange(period_began_, now);
    std::vector<std::uint64_t> counts;
    for (std::size_t m = 0; m < grid_.models(); ++m) {
      counts.push_back(arrived_[m].exchange(0, std::memory_order_relaxed));
    }
    const std::uint64_t violated = violated_.exchange(0, std::memory_order_relaxed);
    // Read after the violated ones, so that it includes each of them.
    const std::uint64_t ended = ended_.exchange(0, std::memory_order_relaxed);
    std::optional<packing::plan> next =
        planner_->end_period(counts, std::max(ended, violated), violated, lasted);
    static_cast<void>(applier_.take_back());
    if (usable_gpus() != planned_gpus_) next = plan_on_usable();
    if (next) take(*next);
  }

  const packing::latency_grid& grid_;
  packing::transition_limits limits_;
  duration look_;
  std::uint32_t planned_gpus_;  // GPUs that the planner's plans use.
  plan_applier<Host, Router> applier_;
  Planner* planner_ = nullptr;
  time_point period_began_{};
  packing::plan plan_;    // The latest one begun.
  bool is_whole_ = true;  // No GPU was set aside then.
  std::vector<model_id> interrupted_;
  std::uint64_t plans_ = 0;
  std::unique_ptr<std::atomic<std::uint64_t>[]> arrived_;  // By model, in this period.
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> violated_{0};
};

}  // namespace cohort::engine
