// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server that replans as its load changes, in virtual time.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/packing/model/burst_margin.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/moves/periodic_planner.hpp>
#include <cohort/packing/moves/plan_transition.hpp>
#include <cohort/packing/moves/rate_forecast.hpp>
#include <cohort/packing/moves/replan_policy.hpp>
#include <cohort/sim/plans/plan_simulation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::sim {

/// A whole device out of service for a while; the server knows at once.
struct outage {
  device_id gpu;                                              ///< Below the problem's.
  double from_ms = 0;                                         ///< At least 0.
  double lasts_ms = std::numeric_limits<double>::infinity();  ///< Above 0.
};

/// Options of the closed loop.
struct closed_loop_options {
  double length_ms = 1'800'000;   ///< Above 0.
  double transition_ms = 12'000;  ///< From decision to service of a new plan; below a period.
  packing::rate_forecast::options forecast{};
  packing::replan_policy::options replan{};
  double margin = 0.1;  ///< Plans exceed the forecast by this part; at least 0.
  packing::burst_margin burst{.deviations = 0};  ///< Added to it, for chance within an SLO.
  std::uint64_t seed = 1;
  std::vector<outage> outages{};
};

/// Measurements of one period.
struct closed_loop_period {
  double end_s = 0;
  std::vector<double> arrived_rps;  ///< By model.
  double completed_rps = 0;         ///< In time, over all models.
  double violation_rate = 0;        ///< Fraction of ended requests.
  std::uint32_t used_pct = 0;       ///< Sum of the gpu-let sizes in service at its end.
  double planned_part = 1;          ///< Fraction of its demand served by the plan at its end.
  bool replanned = false;
  std::size_t loads = 0;  ///< Models loaded for it.
};

struct closed_loop_result {
  std::vector<closed_loop_period> periods;
  std::vector<plan_counts> total;  ///< By model.
  double violation_rate = 0;
  std::size_t interrupted = 0;  ///< Models that a transition could not keep in service.
  /// Over all plans: the smallest fraction served, with its reason, and every model left out.
  packing::shortfall missing{};
};

/// Runs sources against a packer that plans once a period for the forecast. If the demand cannot be
/// served, `packing::periodic_planner` serves what it can. The first plan is for the initial rates.
/// As in `engine::plan_follower`, plans exclude a device at once when it goes out of service, and
/// include it from the end of the period of its return; its waiting requests are redistributed, and
/// its running batch ends normally.
/// @throws config_error If an option is out of its range.
template <packing::packer Packer>
[[nodiscard]] closed_loop_result run_closed_loop(
    const packing::latency_grid& grid, const packing::packing_problem& problem,
    const std::vector<plan_simulation::source>& sources,
    const std::optional<packing::interference_model>& interference, const Packer& packer,
    const closed_loop_options& o) {
  const double period_ms = to_ms(packing::replan_policy{o.replan}.period());
  expects(o.length_ms > 0, "closed_loop: length_ms must be above 0");
  expects(o.transition_ms >= 0 && o.transition_ms < period_ms,
          "closed_loop: transition_ms must be at least 0 and below a period");
  for (const outage& x : o.outages) {
    expects(x.gpu.index() < problem.gpus,
            "closed_loop: an outage's gpu must be one of the problem");
    expects(x.from_ms >= 0 && x.lasts_ms > 0,
            "closed_loop: an outage's from_ms must be at least 0, lasts_ms above 0");
  }
  // The plan made now serves from the end of its transition to the end of the next one.
  packing::periodic_planner planner{
      grid, problem, packer,
      packing::periodic_planner_options{.forecast = o.forecast,
                                        .replan = o.replan,
                                        .margin = o.margin,
                                        .burst = o.burst,
                                        .ahead = 1 + o.transition_ms / period_ms}};
  const std::size_t models = grid.models();
  std::vector<packing::live_gpulet> live;
  packing::transition_limits limits{.gpus = problem.gpus,
                                    .max_gpulets_per_gpu = grid.options().max_gpulets_per_gpu,
                                    .memory_mb = problem.memory_mb};
  plan_simulation s{grid, sources, interference, o.seed};
  closed_loop_result result;

  const auto is_out = [&](device_id gpu) {
    return std::ranges::any_of(o.outages, [&](const outage& x) {
      return x.gpu == gpu && x.from_ms <= s.now_ms() && s.now_ms() < x.from_ms + x.lasts_ms;
    });
  };
  const auto serve = [&] {
    packing::plan now;
    for (packing::live_gpulet& g : live) {
      g.is_out = is_out(g.what.gpu);
      if (!g.is_out) now.push_back(g.what);
    }
    s.install(now);
  };
  const auto install = [&](const packing::plan& p) {
    packing::transition moves = packing::plan_transition(grid, live, p, limits);
    live = std::move(moves.after);
    serve();
    result.interrupted += moves.interrupted.size();
    const packing::shortfall& missing = planner.missing();
    if (missing.part < result.missing.part) {
      result.missing.part = missing.part;
      result.missing.reason = missing.reason;
    }
    for (const auto& left_out : missing.left_out) {
      const auto same = [&left_out](const auto& x) { return x.model == left_out.model; };
      if (std::ranges::none_of(result.missing.left_out, same)) {
        result.missing.left_out.push_back(left_out);
      }
    }
    return moves.loads;
  };
  std::vector<double> start(models, 0.0);
  for (std::size_t m = 0; m < models && m < sources.size(); ++m) {
    if (sources[m].most_rps > 0) start[m] = sources[m].rate_rps(0);
  }
  install(planner.plan_for(std::move(start)));

  std::vector<plan_counts> before = s.counts();
  std::optional<packing::plan> coming;
  double coming_at = 0;
  const auto begin = [&](packing::plan next) {
    coming = std::move(next);
    coming_at = std::min(s.now_ms() + o.transition_ms, o.length_ms);
  };
  const auto plan_on_usable = [&] {
    coming.reset();  // It was for other devices.
    packing::plan p =
        planner.plan_on(problem.gpus - static_cast<std::uint32_t>(limits.set_aside.size()));
    if (!p.empty()) begin(std::move(p));
  };
  const auto look = [&] {
    const std::size_t known = limits.set_aside.size();
    for (device_id d{0}; d.value() < problem.gpus; d = device_id{d.value() + 1}) {
      if (is_out(d) && !limits.is_set_aside(d)) limits.set_aside.push_back(d);
    }
    serve();
    if (limits.set_aside.size() > known) plan_on_usable();
  };
  for (double at = 0; at < o.length_ms;) {
    closed_loop_period period;
    const double end = std::min(at + period_ms, o.length_ms);
    if (at == 0 && !o.outages.empty()) look();
    while (at < end) {
      double next = coming ? std::min(coming_at, end) : end;
      bool is_change = false;
      for (const outage& x : o.outages) {
        for (const double t : {x.from_ms, x.from_ms + x.lasts_ms}) {
          if (t <= at || t > next) continue;
          next = t;
          is_change = true;
        }
      }
      s.run(next);
      at = next;
      if (is_change) look();
      if (!coming || at < coming_at) continue;
      period.loads += install(*coming);
      period.replanned = true;
      coming.reset();
    }
    period.end_s = at / 1e3;
    std::vector<std::uint64_t> arrivals;
    std::uint64_t ended = 0;
    std::uint64_t violated = 0;
    for (std::size_t m = 0; m < models; ++m) {
      const plan_counts& c = s.counts()[m];
      const std::uint64_t arrived = c.arrived - before[m].arrived;
      arrivals.push_back(arrived);
      period.arrived_rps.push_back(static_cast<double>(arrived) / period_ms * 1e3);
      period.completed_rps +=
          static_cast<double>(c.completed - before[m].completed) / period_ms * 1e3;
      violated += c.violated - before[m].violated;
      ended += c.completed - before[m].completed + c.violated - before[m].violated;
    }
    before = s.counts();
    period.violation_rate =
        ended > 0 ? static_cast<double>(violated) / static_cast<double>(ended) : 0;
    for (const packing::live_gpulet& g : live)
      period.used_pct += g.is_out ? 0 : g.what.size.percent();
    period.planned_part = planner.missing().part;
    result.periods.push_back(std::move(period));

    std::optional<packing::plan> changed = planner.end_period(arrivals, ended, violated);
    if (changed) begin(std::move(*changed));
    if (std::erase_if(limits.set_aside, [&](device_id d) { return !is_out(d); }) > 0) {
      plan_on_usable();
    }
  }
  result.total = s.counts();
  plan_counts all;
  for (const plan_counts& c : result.total) {
    all.completed += c.completed;
    all.violated += c.violated;
  }
  result.violation_rate = all.violation_rate();
  return result;
}

}  // namespace cohort::sim
