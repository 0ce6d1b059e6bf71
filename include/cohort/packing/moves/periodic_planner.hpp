// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes the next plan from request counts, period by period: forecast, decision and packer.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/burst_margin.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/moves/rate_forecast.hpp>
#include <cohort/packing/moves/replan_policy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::packing {

/// Options of periodic planning.
struct periodic_planner_options {
  rate_forecast::options forecast{};
  replan_policy::options replan{};
  double margin = 0.1;                  ///< Plans exceed the forecast by this part; at least 0.
  burst_margin burst{.deviations = 0};  ///< Added to it, for chance within an SLO.
  /// A smaller plan must free at least this much of the devices in use, in percent of one device,
  /// to be worth its moves; at least 0.
  double least_gain_pct = 10;
  double ahead = 1;  ///< Periods from a decision to the end of its plan's first; ≥ 0.
  /// By model: minimum rate to plan for, so that the model keeps a place; at least 0. Default 0.
  std::vector<double> least_rps{};
};

/// The part of a demand that a plan does not serve, and why.
struct shortfall {
  /// A model that is not served.
  struct left_out_model {
    std::size_t model = 0;  ///< Index in the grid.
    std::string reason;     ///< The first constraint that fails, in words.
  };

  double part = 1;     ///< Fraction of the demand served, of all other models; 0: none.
  std::string reason;  ///< The packer's reason for less than 1; empty if none.
  std::vector<left_out_model> left_out;
};

/// Makes a server's first plan and, at the end of a period, the next one if the policy requires it.
/// If the demand cannot be served in full, it leaves out models that cannot be served at any rate;
/// then, while the rest cannot be served together at any rate, those with the smallest rates; and
/// scales the others down equally, to less than 1 % below a multiple for which the packer finds no
/// plan. Empty only if no model can be served.
///
/// A plan costs moves, so it is made only if it gains: if a rate exceeds the margins of the plan in
/// service; if SLOs are violated, but after a plan that did not end violations only 2, then 4, then
/// 8 periods later; if rates fall and it frees some of the devices. A value: reads no clock and
/// applies nothing. Complexity: that of the packer once, if the demand can be served; else about 10
/// times, and twice for each model if some are left out. Thread safety: none.
template <packer Packer>
class periodic_planner {
 public:
  /// @param grid Must outlive this. @param problem Its rates are not used.
  /// @throws config_error If an option is out of its range.
  periodic_planner(const latency_grid& grid, packing_problem problem, Packer pack,
                   periodic_planner_options o = {})
      : grid_{grid},
        problem_{std::move(problem)},
        pack_{std::move(pack)},
        options_{std::move(o)},
        policy_{options_.replan},
        forecasts_(grid.models(), rate_forecast{options_.forecast}),
        planned_(grid.models(), 0.0),
        asked_(grid.models(), 0.0),
        latest_(grid.models(), 0.0),
        hopeless_(grid.models()) {
    expects(options_.margin >= 0 && std::isfinite(options_.margin),
            "periodic_planner: margin must be at least 0");
    expects(options_.ahead >= 0 && std::isfinite(options_.ahead),
            "periodic_planner: ahead must be at least 0");
    expects(options_.least_gain_pct >= 0 && std::isfinite(options_.least_gain_pct),
            "periodic_planner: least_gain_pct must be at least 0");
    options_.least_rps.resize(grid.models(), 0.0);
    for (const double r : options_.least_rps) {
      expects(r >= 0 && std::isfinite(r), "periodic_planner: least_rps must be at least 0");
    }
  }

  [[nodiscard]] duration period() const noexcept { return policy_.period(); }
  /// By model: the rates that the latest plan serves.
  [[nodiscard]] const std::vector<double>& planned_rps() const noexcept { return planned_; }
  /// The demand that the latest plan does not serve.
  [[nodiscard]] const shortfall& missing() const noexcept { return missing_; }

  /// Puts a plan made elsewhere into service: decisions start from its rates.
  void adopt(const plan& p) {
    missing_ = {};
    planned_.assign(grid_.models(), 0.0);
    for (const gpulet& g : p) {
      for (const placed_model& m : g.models) planned_[m.model.index()] += m.rate_rps;
    }
    asked_ = planned_;
    latest_ = planned_;
    for (double& r : latest_) r /= 1 + options_.margin;
    in_service(p);
  }

  /// A plan for these rates, or for as large a fraction of them as possible; independent of
  /// history.
  /// @param rates By model of the grid.
  [[nodiscard]] plan plan_for(std::vector<double> rates) {
    latest_ = rates;
    plan p = make_plan(std::move(rates));
    in_service(p);
    return p;
  }

  /// Plans for this number of devices from now on, as others are out of service, or back.
  /// @returns A plan for the last period's rates or, if there was none, for those of the plan in
  /// service; empty if no device is left.
  [[nodiscard]] plan plan_on(std::uint32_t gpus) {
    problem_.gpus = gpus;
    plan p = make_plan(latest_);
    in_service(p);
    return p;
  }

  /// Ends a period. @param arrived Requests by model of the grid. @param ended, violated Requests
  /// of all models that ended, and that missed their SLO.
  /// @param lasted Actual length of the period, if it differs; above 0.
  /// @returns The next plan, if one is needed.
  [[nodiscard]] std::optional<plan> end_period(std::span<const std::uint64_t> arrived,
                                               std::uint64_t ended, std::uint64_t violated,
                                               std::optional<duration> lasted = std::nullopt) {
    std::vector<double> rates;
    std::vector<double> needed;
    std::vector<double> wanted;
    double wanted_sum = 0;
    for (std::size_t m = 0; m < forecasts_.size(); ++m) {
      rate_forecast& f = forecasts_[m];
      f.add(arrived[m], lasted.value_or(policy_.period()));
      rates.push_back(std::max(f.plan_rps(options_.ahead), options_.least_rps[m]));
      // No plan can serve these.
      const bool hopeless = !hopeless_[m].empty();
      const double expected = std::max(f.expected_rps(0), f.expected_rps(options_.ahead));
      needed.push_back(hopeless ? 0 : std::max(expected, options_.least_rps[m]));
      wanted.push_back(hopeless ? 0 : rates.back() * (1 + options_.margin));
      wanted_sum += wanted.back();
    }
    latest_ = rates;
    if (problem_.gpus == 0) return std::nullopt;
    if (!policy_.violates(ended, violated)) wait_ = 0;
    if (hold_ > 0) --hold_;
    switch (policy_.decide(asked_, needed, wanted, ended, violated)) {
      case replan_cause::none:
        return std::nullopt;
      case replan_cause::rise:
        break;
      case replan_cause::violations:
        if (hold_ > 0) return std::nullopt;
        // If the new plan does not end violations, the next one will not either.
        wait_ = std::min(longest_wait, std::max(1U, 2 * wait_));
        hold_ = wait_;
        break;
      case replan_cause::spare:
        return smaller_plan(std::move(rates), wanted_sum);
    }
    return plan_for(std::move(rates));
  }

 private:
  /// Loads below this fraction of the maximum that one model's rate allows count as none.
  static constexpr double smallest = 1e-6;
  /// Most periods between plans for violations that plans do not end.
  static constexpr std::uint32_t longest_wait = 8;
  /// Rates must fall by this fraction before a smaller plan is considered again.
  static constexpr double falls_on = 0.05;

  void in_service(const plan& p) {
    used_pct_ = used_pct(p);
    tried_rps_ = std::numeric_limits<double>::infinity();
  }

  /// A plan for rates that fell, if it is worth its moves.
  [[nodiscard]] std::optional<plan> smaller_plan(std::vector<double> rates, double wanted_rps) {
    if (wanted_rps > tried_rps_ * (1 - falls_on)) return std::nullopt;
    tried_rps_ = wanted_rps;
    const std::vector<double> planned = planned_;
    const std::vector<double> asked = asked_;
    const shortfall missing = missing_;
    plan p = make_plan(std::move(rates));
    // Serving a previously unserved demand is a gain, too.
    if (missing.part >= 1 && used_pct(p) + options_.least_gain_pct > used_pct_) {
      planned_ = planned;
      asked_ = asked;
      missing_ = missing;
      return std::nullopt;
    }
    in_service(p);
    return p;
  }

  [[nodiscard]] plan make_plan(std::vector<double> rates) {
    missing_ = {};
    for (std::size_t m = 0; m < rates.size(); ++m) {
      rates[m] *= 1 + options_.margin;
      if (rates[m] > 0 && !hopeless_[m].empty()) leave_out(rates, m, hopeless_[m]);
    }
    planned_ = asked_ = rates;
    if (problem_.gpus == 0) {
      missing_.part = 0;
      missing_.reason = "no device is in service";
      planned_.assign(grid_.models(), 0.0);
      return {};
    }
    packing_result all = pack_part(rates, 1);
    if (all.schedulable()) return std::move(all.plan);
    double most = most_part(rates);
    packing_result least = pack_part(rates, most * smallest);
    if (!least.schedulable()) {
      keep_what_goes_together(rates, most * smallest);
      planned_ = asked_ = rates;
      all = pack_part(rates, 1);
      if (all.schedulable()) return std::move(all.plan);
      most = most_part(rates);
      least = pack_part(rates, most * smallest);
      if (!least.schedulable()) {
        missing_.part = 0;
        missing_.reason = least.reason;
        planned_.assign(grid_.models(), 0.0);
        return {};
      }
    }
    missing_.reason = std::move(all.reason);
    missing_.part = most * smallest;
    return best_part(rates, most, std::move(least.plan));
  }

  [[nodiscard]] packing_result pack_part(const std::vector<double>& rates, double part) {
    std::vector<double> scaled = rates;
    for (double& r : scaled) r *= part;
    problem_.rates_rps = options_.burst.plan_rps(grid_, std::move(scaled));
    return pack_(grid_, problem_);
  }

  /// Upper bound on the fraction that can be served: above it a model needs more than all devices.
  [[nodiscard]] double most_part(const std::vector<double>& rates) const {
    double part = 1;
    const double gpulets = static_cast<double>(problem_.gpus) * grid_.options().max_gpulets_per_gpu;
    for (std::size_t m = 0; m < rates.size(); ++m) {
      double most = 0;
      for (std::size_t s = 0; s < grid_.sizes(); ++s) {
        most = std::max(most, grid_.capacity_rps(m, s));
      }
      if (rates[m] > 0 && most > 0) part = std::min(part, gpulets * most / rates[m]);
    }
    return part;
  }

  void leave_out(std::vector<double>& rates, std::size_t m, std::string reason) {
    rates[m] = 0;
    missing_.left_out.push_back({m, std::move(reason)});
  }

  /// Leaves out the models that cannot be served at `part` of their rates, alone or beside models
  /// with larger rates.
  void keep_what_goes_together(std::vector<double>& rates, double part) {
    std::vector<std::size_t> order;
    for (std::size_t m = 0; m < rates.size(); ++m) {
      if (rates[m] <= 0) continue;
      std::vector<double> alone(rates.size(), 0.0);
      alone[m] = rates[m];
      const packing_result r = pack_part(alone, part);
      if (r.schedulable()) {
        order.push_back(m);
        continue;
      }
      std::string reason = reason_of(r, m);
      if (r.status == packing_status::infeasible) hopeless_[m] = reason;
      leave_out(rates, m, std::move(reason));
    }
    detail::sort_stably(order, std::ranges::greater{},
                        [&rates](std::size_t m) { return rates[m]; });
    std::vector<double> together(rates.size(), 0.0);
    for (const std::size_t m : order) {
      together[m] = rates[m];
      const packing_result r = pack_part(together, part);
      if (r.schedulable()) continue;
      together[m] = 0;
      leave_out(rates, m, reason_of(r, m));
    }
  }

  [[nodiscard]] std::string reason_of(const packing_result& r, std::size_t m) const {
    if (!r.reason.empty()) return r.reason;
    return fmt::format("{}: no plan was found", grid_.profile(m).name);
  }

  /// The largest fraction with a plan: downwards in growing steps, as loads are seldom far too
  /// high, then by bisection. `missing_.part` has the plan `found`; fractions above `most` have
  /// none.
  [[nodiscard]] plan best_part(const std::vector<double>& rates, double most, plan found) {
    double low = missing_.part;
    double high = 1;
    const auto packs = [&](double part) {
      packing_result r = pack_part(rates, part);
      if (!r.schedulable()) {
        high = part;
        return false;
      }
      low = part;
      found = std::move(r.plan);
      return true;
    };
    double step = 0.03;
    for (double part = most < 1 ? most : 1 - step; part > low && !packs(part); part *= 1 - step) {
      step = std::min(0.5, 2 * step);
    }
    for (int i = 0; i < 20 && high - low > high / 256; ++i) {
      static_cast<void>(packs((low + high) / 2));
    }
    missing_.part = low;
    for (std::size_t m = 0; m < rates.size(); ++m) planned_[m] = rates[m] * low;
    return found;
  }

  const latency_grid& grid_;
  packing_problem problem_;
  Packer pack_;
  periodic_planner_options options_;
  replan_policy policy_;
  std::vector<rate_forecast> forecasts_;
  std::vector<double> planned_;
  std::vector<double>
      asked_;  // Rates that the plan in service was made for, whether it serves them or not.
  std::vector<double> latest_;  // Rates to plan for, before margins.
  double used_pct_ = 0;         // Share of the devices used by the plan in service.
  double tried_rps_ = std::numeric_limits<double>::infinity();  // At the last rejected plan.
  std::uint32_t wait_ = 0;             // Periods between the last plans for violations.
  std::uint32_t hold_ = 0;             // Periods until another one is allowed.
  std::vector<std::string> hopeless_;  // By model: why no plan can serve it; else empty.
  shortfall missing_;
};

}  // namespace cohort::packing
