// SPDX-License-Identifier: Apache-2.0
/// @file
/// The service that places models by a plan and makes new plans as their load changes.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/partition_host.hpp>
#include <cohort/engine/plan_follower.hpp>
#include <cohort/packing/moves/periodic_planner.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <serve/barrier.hpp>
#include <serve/log.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "placements.hpp"
#include "plan.hpp"
#include "staged_service.hpp"

namespace cohort::inference {

/// An engine with pools of schedulers and backends, one of each per partition.
/// @tparam Loader As in `engine::partition_host`.
template <class Scheduler, class Backend, class Loader>
class planned_service final : public model_service {
 public:
  /// Carries out the plan before it returns, except on devices where a first run hangs.
  /// @param models The plan's models, by the ids of its profiles; `backend` is kept.
  planned_service(std::string description, const options& o,
                  std::shared_ptr<const served_plan> plan, std::vector<served_model> models,
                  Scheduler scheduler, std::unique_ptr<Backend> backend, Loader loader,
                  outcome_listener& listener, serve::metrics& counters)
      : description_{std::move(description)},
        plan_{std::move(plan)},
        models_{std::move(models)},
        counters_{counters},
        places_{names_of(plan_->profiles), counters},
        backend_{std::move(backend)},
        engine_{core_type{std::move(scheduler),
                          duration{0},
                          {{}, &counters, &places_, &suspended_},
                          handing_back(o.health),
                          o.refusals},
                *backend_,
                engine::inline_completion{deliver_and_count{this, &listener, o.health.retries}},
                {.max_models = placements::most}},
        partitions_{engine_, *backend_, std::move(loader)},
        host_{partitions_, places_},
        router_{plan_->profiles.models.size(), places_},
        planner_{*plan_->grid,
                 {.gpus = plan_->schedule.demand.gpus,
                  .rule = plan_->schedule.rule,
                  .memory_mb = plan_->schedule.demand.memory_mb},
                 again{plan_.get()},
                 {.replan = {.period = period_of(o)},
                  .burst = {.deviations = plan_->schedule.burst_margin},
                  .least_rps = plan_->least_rps(period_of(o))}},
        plans_anew_{o.replan_period_s > 0},
        follower_{*plan_->grid,
                  plan_->limits(),
                  host_,
                  router_,
                  {.longest_warm_up = from_seconds(o.warm_up_timeout_s)}} {
    for (const served_model& m : models_) suspended_.add(m.id, m.meta.name);
    backend_->bind(engine_);
    if constexpr (requires { backend_->on_failure(std::ref(failures_)); }) {
      backend_->on_failure(std::ref(failures_));
    }
    planner_.adopt(plan_->schedule.plan);
    follower_.begin(plan_->schedule.plan);
    counters_.planned(false);
    for (std::uint32_t g = 0; g < plan_->schedule.demand.gpus; ++g) {
      show_planned(device_id{g}, true);
    }
    for (time_point now = clock_.now(); follower_.advance(now) <= now; now = clock_.now()) {
      tell_of_devices();
      std::this_thread::sleep_for(step);
    }
    tell_of_devices();
    if (plans_anew_) follower_.follow(planner_, clock_.now());
    keeper_ = std::thread{[this] { keep(); }};
  }
  ~planned_service() override {
    drain();
    keeper_.join();
    engine_.join();    // Counting its last outcomes needs members that are destroyed earlier.
    backend_.reset();  // It may be warming up a model, and notifies the host of partitions.
  }

  [[nodiscard]] const std::vector<served_model>& models() const noexcept override {
    return models_;
  }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] const std::string& notes() const noexcept override { return plan_->notes; }
  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    if (is_draining_.load(std::memory_order_relaxed)) return refusal::draining;
    const model_id asked = r.model;
    if (is_suspended(asked)) return refusal::model_suspended;
    r.moves = 0;
    r.was_failed = false;
    follower_.arrived(asked);
    const quiet_engine quiet{engine_};
    const auto why = router_.submit(quiet, r, asked);
    if (why != refusal::unknown_model) return why;
    // The present plan has no place for the model; the next one learns of the demand.
    return is_short_.load(std::memory_order_relaxed) ? refusal::no_device : refusal::queue_full;
  }
  void wake_up() noexcept override { engine_.wake_up(); }
  void cancel(engine::tensor_request& r) override { engine_.cancel(r); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept override {
    return router_.waiting(engine_, id);
  }
  [[nodiscard]] bool has_device() const noexcept override {
    return std::ranges::any_of(models_, [this](const served_model& m) { return serves(m.id); });
  }
  [[nodiscard]] bool serves(model_id id) const noexcept override {
    return router_.has_device(engine_, id);
  }
  [[nodiscard]] bool is_suspended(model_id id) const noexcept override {
    return suspended_.has(id);
  }
  [[nodiscard]] std::optional<service_state> inspect() override {
    service_state out;
    engine_.inspect([&](const auto& loop) {
      out.learned.lateness = loop.core().scheduler().lateness();
      out.arrival_delay = loop.arrival_delay();
    });
    return out;
  }
  [[nodiscard]] std::size_t hanging_devices() override {
    return hanging_in(engine_) + hanging_first_runs_.load(std::memory_order_relaxed);
  }
  void drain() noexcept override {
    {
      const std::lock_guard lock{mutex_};
      is_draining_.store(true, std::memory_order_relaxed);
    }
    woken_.notify_one();
  }

 private:
  static constexpr std::chrono::milliseconds step{2};  // Between two checks of a step's condition.
  static constexpr std::chrono::seconds pause{1};      // Before a failed step is retried.

  struct deliver_and_count {
    planned_service* self;
    outcome_listener* listener;
    std::uint32_t most_moves;
    void operator()(request& r, outcome how) const {
      auto& mine = static_cast<engine::tensor_request&>(r);
      if (how == outcome::failed && mine.moves < most_moves && self->moves(mine)) return;
      // Cancelled requests, and those that cannot be computed, say nothing about the plan.
      if (how != outcome::cancelled && !mine.is_unfit)
        self->follower_.ended(how == outcome::completed);
      listener->ended(mine, how);
    }
  };
  struct again {
    const served_plan* plan;
    packing::packing_result operator()(const packing::latency_grid&,
                                       const packing::packing_problem& p) const {
      return plan->pack(p);
    }
  };
  using core_type = engine::basic_engine_core<Scheduler, placements_observer>;
  using engine_type =
      engine::basic_engine<core_type, Backend, engine::inline_completion<deliver_and_count>>;
  /// For the router: submits without a wake-up, which `wake_up` does.
  struct quiet_engine {
    engine_type& of;
    std::optional<refusal> submit(request& r) const noexcept { return of.submit_quietly(r); }
    [[nodiscard]] std::uint32_t waiting(model_id m) const noexcept { return of.waiting(m); }
    [[nodiscard]] bool has_device(model_id m) const noexcept { return of.has_device(m); }
  };
  using partitions_type = engine::partition_host<engine_type, Backend, Loader>;
  using host_type = noting_host<partitions_type>;
  using planner_type = packing::periodic_planner<again>;

  static std::vector<std::string> names_of(const formats::profile_dir& p) {
    std::vector<std::string> names;
    for (const packing::model_profile& m : p.models) names.push_back(m.name);
    return names;
  }
  static duration period_of(const options& o) {
    return o.replan_period_s > 0 ? from_seconds(o.replan_period_s) : std::chrono::seconds{20};
  }

  /// Makes a partition that fails hand its requests back, for others of the same model.
  static engine::health_options handing_back(engine::health_options o) {
    o.hands_back = true;
    o.retries = 0;
    return o;
  }
  /// @returns Whether another instance takes the request: once if a partition failed it, or if its
  /// partition went out of service.
  bool moves(engine::tensor_request& r) {
    if (!engine::may_move(r, engine_.has_device(r.model), r.was_failed)) return false;
    const model_id asked = places_.model_of(r.model);
    ++r.moves;
    engine::elsewhere others{engine_, r.model};
    if (router_.submit(others, r, asked)) return false;
    counters_.retries.add(1, asked.index());
    return true;
  }

  /// The thread that plans and loads. It stops before the engine drains, as it uses that.
  void keep() {
    std::string said;
    std::unique_lock lock{mutex_};
    const auto is_draining = [this] { return is_draining_.load(std::memory_order_relaxed); };
    while (!is_draining()) {
      lock.unlock();
      const time_point now = clock_.now();
      const std::uint64_t before = follower_.plans();
      time_point next = now + duration{pause};
      try {
        next = std::max(follower_.advance(now), now + duration{step});
        said.clear();
      } catch (const std::exception& e) {
        counters_.planned(true);
        if (said != e.what())
          serve::log_line(serve::severity::error, fmt::format("plan: {}; trying again", e.what()));
        said = e.what();
      }
      serve::guarded("inference_server", "plan", [&] {
        tell_of_devices();
        if (follower_.plans() != before) tell_of_plan();
      });
      lock.lock();
      woken_.wait_for(lock, next - clock_.now(), is_draining);
    }
    engine_.drain();
  }

  /// Logs the models that a new plan does not serve, and those that it interrupts.
  void tell_of_plan() {
    counters_.planned(false);
    const auto name = [this](std::size_t m) -> const std::string& {
      return plan_->profiles.models[m].name;
    };
    for (const model_id m : follower_.interrupted()) {
      serve::log_warning(
          fmt::format("plan: {} is not served until it is loaded again", name(m.index())));
    }
    const packing::shortfall& missing = planner_.missing();
    for (const auto& m : missing.left_out) {
      serve::log_warning(fmt::format("plan: {} is left out: {}", name(m.model), m.reason));
    }
    if (missing.part < 1) {
      serve::log_warning(
          fmt::format("plan: for {:.0f} % of the load: {}", 100 * missing.part, missing.reason));
    }
  }

  /// Logs the devices that plans avoid from now on, and why, or use again.
  void tell_of_devices() {
    const std::vector<engine::sick_partition> sick = follower_.sick();
    hanging_first_runs_ =
        static_cast<std::size_t>(std::ranges::count_if(sick, &engine::sick_partition::warms_up));
    const std::vector<device_id> before = std::exchange(set_aside_, follower_.set_aside());
    is_short_ = !set_aside_.empty();
    const std::uint32_t all = plan_->schedule.demand.gpus;
    const std::string rest =
        fmt::format("on {} of {} device{}", all - set_aside_.size(), all, all == 1 ? "" : "s");
    for (const device_id d : set_aside_) {
      if (std::ranges::find(before, d) != before.end()) continue;
      show_planned(d, false);
      std::string who;
      for (const engine::sick_partition& p : sick) {
        if (p.gpu != d) continue;
        who += fmt::format("{}partition {} {}", who.empty() ? "" : ", ", p.partition.value(),
                           p.warms_up ? "does not end a first run" : "is out");
      }
      serve::log_line(serve::severity::error,
                      fmt::format("plan: device {}: {}: {}", d.value(),
                                  who.empty() ? "a partition was out" : who,
                                  plans_anew_ ? "planned without it, " + rest : "left as it is"));
    }
    for (const device_id d : before) {
      if (std::ranges::find(set_aside_, d) != set_aside_.end()) continue;
      show_planned(d, true);
      serve::log_line(serve::severity::info,
                      fmt::format("plan: device {} is back{}", d.value(),
                                  plans_anew_ ? ": planned with it, " + rest : ""));
    }
  }
  void show_planned(device_id d, bool is) {
    counters_.device_planned.set({{"device", std::to_string(d.value())}}, is ? 1 : 0);
  }

  std::string description_;
  std::shared_ptr<const served_plan> plan_;
  std::vector<served_model> models_;
  serve::metrics& counters_;
  steady_clock clock_;
  placements places_;
  suspensions suspended_;
  failure_log failures_;
  std::unique_ptr<Backend> backend_;
  engine_type engine_;
  partitions_type partitions_;
  host_type host_;
  noting_router router_;
  planner_type planner_;
  bool plans_anew_;
  engine::plan_follower<host_type, noting_router, planner_type> follower_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::atomic<bool> is_draining_{false};
  std::vector<device_id> set_aside_;                // As logged.
  std::atomic<bool> is_short_{false};               // Plans avoid a device.
  std::atomic<std::size_t> hanging_first_runs_{0};  // Unknown to the engine.
  std::thread keeper_;
};

}  // namespace cohort::inference
