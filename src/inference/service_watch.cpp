// SPDX-License-Identifier: Apache-2.0
#include "service_watch.hpp"

#include <cohort/core/clock.hpp>
#include <cohort/deferred/autoscale.hpp>
#include <cohort/deferred/twin/learned_state.hpp>
#include <cohort/sim/observed_workload.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <formats/workload_writer.hpp>
#include <iterator>
#include <map>
#include <optional>
#include <serve/barrier.hpp>
#include <utility>

namespace cohort::inference {
namespace {

/// The index of each row's state; of a model's versions, which share a row, the last one wins.
std::map<model_id, std::size_t> by_row(const service_state& known) {
  std::map<model_id, std::size_t> all;
  for (std::size_t i = 0; i < known.models.size(); ++i) all[known.models[i].row] = i;
  return all;
}

}  // namespace

void surveyor::start(model_service& s) {
  service_ = &s;
  thread_ = std::thread{[this] { run(); }};
}

surveyor::answer surveyor::look() {
  // A working engine answers within one turn of its loop, well under a millisecond.
  constexpr std::chrono::milliseconds patience{500};
  std::unique_lock lock{mutex_};
  if (is_ending_ || is_overdue_) return last_;
  const std::uint64_t mine = ++asked_;
  wanted_.notify_one();
  is_overdue_ = !told_.wait_for(lock, patience, [&] { return answered_ >= mine || is_ending_; });
  return last_;
}

void surveyor::end() {
  {
    const std::lock_guard lock{mutex_};
    is_ending_ = true;
  }
  wanted_.notify_one();
  told_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void surveyor::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wanted_.wait(lock, [&] { return is_ending_ || asked_ > answered_; });
    if (is_ending_) return;
    const std::uint64_t upto = asked_;
    lock.unlock();
    std::optional<answer> a;
    serve::guarded("inference_server", "a look at the engine", [&] {
      a = answer{.state = service_->inspect(), .hanging = service_->hanging_devices()};
    });
    lock.lock();
    if (a) last_ = std::move(*a);  // Else the last state stays.
    answered_ = upto;
    is_overdue_ = false;
    told_.notify_all();
  }
}

void service_watch::start(model_service& s) {
  service_ = &s;
  surveyor_.start(s);
  if (s.catalog() != nullptr) return;  // Models come and go.
  for (const served_model& m : s.models()) meet(m.id);
}

void service_watch::returned(duration after) noexcept {
  const std::lock_guard lock{mutex_};
  returned_ = std::min(returned_ + 1, 256.0);
  way_back_ns_ += (static_cast<double>(after.count()) - way_back_ns_) / returned_;
}

std::optional<std::string> service_watch::workload(time_point now) {
  const std::optional<service_state> known = surveyor_.ask();
  if (!known || known->models.empty() || service_->catalog() != nullptr) return std::nullopt;
  const std::lock_guard lock{mutex_};
  std::vector<sim::served_model_facts> facts;
  for (const service_state::model& m : known->models) {
    facts.push_back({.name = m.name,
                     .profile = m.profile,
                     .slo = m.slo,
                     .queue_capacity = options_.queue_capacity,
                     .load = loads_[m.row.index()].measure(now)});
  }
  const duration response = known->arrival_delay + duration{std::llround(way_back_ns_)};
  sim::policy_values policy;
  policy.name = options_.policy.name;
  if (const auto& t = options_.policy.tuning) {
    policy.tune = t->is_on ? "on" : "off";
    const deferred::settings at_present =
        known->learned.tuned ? known->learned.tuned->present : t->initial;
    policy.window = deferred::name_of(at_present.window);
    policy.quantile = fmt::to_string(at_present.quantile);
    if (t->is_on) {
      policy.objective = t->strive_for == deferred::objective::latency ? "latency" : "devices";
      policy.fairness = fmt::to_string(t->fairness);
    }
  }
  return formats::write_workload(
      sim::observed_workload(facts, known->learned, response, std::move(policy)));
}

std::optional<deferred::settings> service_watch::settings() {
  const std::optional<service_state> known = surveyor_.ask();
  if (!known || !known->learned.tuned) return std::nullopt;
  return known->learned.tuned->present;
}

void service_watch::show_advice(serve::metrics& on, const service_state& known) {
  const auto runs_one = [](const deferred::learned_state::device& d) { return d.capacity == 1; };
  if (known.models.empty() || !std::ranges::all_of(known.learned.devices, runs_one)) {
    return on.devices_advised.show({});
  }
  const time_point now = steady_clock{}.now();
  const duration elsewhere = known.arrival_delay + duration{std::llround(way_back_ns_)};
  std::vector<latency_curve> usual;
  std::vector<deferred::model_demand> demand;
  usual.reserve(known.models.size());
  for (const auto& [row, i] : by_row(known)) {
    const service_state::model& m = known.models[i];
    const double factor = known.learned.models[i].learned.quantile(0.5);
    usual.push_back(m.profile);
    usual.back().follow(m.profile, duration{0}, duration{0},
                        [factor](std::uint32_t) { return factor; });
    demand.push_back(
        {.latency = &usual.back(),
         .slo = std::max(m.slo - elsewhere, duration{1}),
         .rate = row.index() < loads_.size() ? loads_[row.index()].measure(now).rate : 0});
  }
  on.devices_advised.show({{{}, static_cast<double>(deferred::devices_needed(demand))}});
}

void service_watch::show_models(serve::metrics& on, const service_state& known) {
  serve::metric_values factors;
  serve::metric_values batches;
  const std::map<model_id, double> told = std::exchange(shifts_, {});
  for (const auto& [row, i] : by_row(known)) {
    const serve::metric_labels model{{"model", known.models[i].name}};
    const deferred::learned_state::model& m = known.learned.models[i];
    factors.emplace_back(model, m.in_use);
    batches.emplace_back(model, static_cast<double>(m.learned.count()));
    // A model that was loaded again starts at 0.
    const auto shifts = static_cast<double>(m.learned.shifts());
    const auto at = told.find(row);
    const double before = at == told.end() || at->second > shifts ? 0 : at->second;
    on.latency_shifts.add(shifts - before, row.index());
    shifts_[row] = shifts;
  }
  on.latency_factor.show(factors);
  on.latency_batches.show(batches);
}

void service_watch::show(serve::metrics& on) {
  const std::optional<service_state> known = surveyor_.ask();
  const std::lock_guard lock{mutex_};
  if (!known) return;
  show_models(on, *known);
  show_advice(on, *known);
  for (const deferred::learned_state::device& d : known->learned.devices) {
    on.device_factor.set({{"device", fmt::to_string(d.id.value())}}, d.factor);
  }
  using engine::device_state;
  for (std::size_t i = 0; i < known->health.size(); ++i) {
    const std::string device = fmt::to_string(known->learned.devices[i].id.value());
    for (const device_state s :
         {device_state::healthy, device_state::suspect, device_state::quarantined}) {
      on.device_state.set({{"device", device}, {"state", std::string{to_string(s)}}},
                          s == known->health[i] ? 1 : 0);
    }
  }
  on.wake_margin_seconds.set({}, to_seconds(known->learned.lateness.margin()));
  on.handover_seconds.set({{"way", "in"}}, to_seconds(known->arrival_delay));
  on.handover_seconds.set({{"way", "back"}}, way_back_ns_ / 1e9);
  const auto& tuned = known->learned.tuned;
  if (tuned || options_.policy.tuning) {  // With a plan it keeps the initial settings.
    const deferred::settings present = tuned ? tuned->present : options_.policy.tuning->initial;
    for (const deferred::window_kind w : deferred::window_kinds) {
      on.setting_window.set({{"window", deferred::name_of(w)}}, w == present.window ? 1 : 0);
    }
    on.setting_quantile.set({}, present.quantile);
  }
  if (tuned) {
    const deferred::tuning_rounds& r = tuned->rounds;
    const std::uint64_t rounds[] = {r.changed, r.judged - r.changed, r.without_enough,
                                    r.without_answer};
    for (std::size_t i = 0; i < std::size(rounds); ++i) {
      on.tuning_rounds.raise_to(static_cast<double>(rounds[i]), 0, i);
    }
    on.tuning_cpu_seconds.raise_to(to_seconds(r.cost));
  }
}

}  // namespace cohort::inference
