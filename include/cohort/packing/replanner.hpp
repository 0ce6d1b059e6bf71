// SPDX-License-Identifier: Apache-2.0
/// @file
/// From counts of requests, period by period, to the next plan: forecast, decision and packer.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/packing/burst_margin.hpp>
#include <cohort/packing/latency_grid.hpp>
#include <cohort/packing/plan.hpp>
#include <cohort/packing/rate_forecast.hpp>
#include <cohort/packing/replan.hpp>
#include <cohort/packing/requirements.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing {

/// How a server plans anew.
struct replanner_options {
  rate_forecast::options forecast{};
  replan_policy::options replan{};
  double margin = 0.1;                  ///< Part by which plans exceed the forecast; at least 0.
  burst_margin burst{.deviations = 0};  ///< On top of it, for chance within an SLO.
  double ahead = 1;  ///< Periods from a decision to the end of its plan's first; at least 0.
};

/// Makes the plan of a server at its start and, at the end of a period, the next one if the policy
/// asks for it. A demand that cannot be served is scaled down, by 3 % at a time, until it can. A
/// value: reads no clock and applies nothing. Complexity: of the packer, at most 60 times.
/// Thread safety: none.
template <packer Packer>
class replanner {
 public:
  /// @param grid Outlives the replanner. @param problem Its rates are not used.
  /// @throws config_error If an option is out of its range.
  replanner(const latency_grid& grid, packing_problem problem, Packer pack,
            replanner_options o = {})
      : grid_{grid},
        problem_{std::move(problem)},
        pack_{std::move(pack)},
        options_{o},
        policy_{o.replan},
        forecasts_(grid.models(), rate_forecast{o.forecast}),
        planned_(grid.models(), 0.0) {
    expects(o.margin >= 0 && std::isfinite(o.margin), "replanner: margin must be at least 0");
    expects(o.ahead >= 0 && std::isfinite(o.ahead), "replanner: ahead must be at least 0");
  }

  [[nodiscard]] duration period() const noexcept { return policy_.period(); }
  /// By model: the rates that the latest plan serves.
  [[nodiscard]] const std::vector<double>& planned_rps() const noexcept { return planned_; }

  /// A plan for these rates, or for as large a part of them as can be served; without any history.
  /// @param rates By model of the grid.
  [[nodiscard]] plan plan_for(std::vector<double> rates) {
    for (double& r : rates) r *= 1 + options_.margin;
    for (int step = 0; step < 60; ++step) {
      problem_.rates_rps = options_.burst.plan_rps(grid_, rates);
      packing_result r = pack_(grid_, problem_);
      if (r.schedulable()) {
        planned_ = std::move(rates);
        return std::move(r.plan);
      }
      for (double& x : rates) x *= 0.97;
    }
    planned_.assign(grid_.models(), 0.0);
    return {};
  }

  /// Ends a period. @param arrived Requests by model of the grid. @param ended, violated Of all
  /// models: how many ended, and how many of those missed their SLO.
  /// @returns The next plan, if there is to be one.
  [[nodiscard]] std::optional<plan> end_period(std::span<const std::uint64_t> arrived,
                                               std::uint64_t ended, std::uint64_t violated) {
    std::vector<double> rates;
    std::vector<double> wanted;
    for (std::size_t m = 0; m < forecasts_.size(); ++m) {
      forecasts_[m].add(arrived[m], policy_.period());
      rates.push_back(forecasts_[m].plan_rps(options_.ahead));
      wanted.push_back(rates.back() * (1 + options_.margin));
    }
    if (!policy_.decide(planned_, wanted, ended, violated)) return std::nullopt;
    return plan_for(std::move(rates));
  }

 private:
  const latency_grid& grid_;
  packing_problem problem_;
  Packer pack_;
  replanner_options options_;
  replan_policy policy_;
  std::vector<rate_forecast> forecasts_;
  std::vector<double> planned_;
};

}  // namespace cohort::packing
