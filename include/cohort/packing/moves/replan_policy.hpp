// SPDX-License-Identifier: Apache-2.0
/// @file
/// When to make a new plan.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>

namespace cohort::packing {

/// Decides at the end of each period whether to plan anew: if the rates to plan for have left those
/// that the plan in service was made for, if too many requests missed their SLO, or if the plan is
/// much larger than it need be. A pure decision on what it is given. Source: gpu-let, section 4.1.
/// Thread safety: immutable.
class replan_policy {
 public:
  struct options {
    duration period = std::chrono::seconds{20};  ///< How often to decide; above 0.
    double violation_threshold = 0.01;  ///< Part of requests late or dropped, above which; 0 to 1.
    double rise = 0.0;        ///< A rate above its planned one by more than this part; at least 0.
    double under_use = 0.15;  ///< All rates below the planned ones by more than this part; 0 to 1.
  };

  /// @throws config_error If an option is out of its range.
  explicit replan_policy(options o) : options_{o} {
    expects(o.period > duration{0}, "replan_policy: period must be above 0");
    expects(o.violation_threshold >= 0 && o.violation_threshold <= 1,
            "replan_policy: violation_threshold must be in 0 to 1");
    expects(o.rise >= 0, "replan_policy: rise must be at least 0");
    expects(o.under_use >= 0 && o.under_use <= 1, "replan_policy: under_use must be in 0 to 1");
  }
  replan_policy() : replan_policy{options{}} {}

  [[nodiscard]] duration period() const noexcept { return options_.period; }

  /// @param planned Rate of each model in the plan in service, and @param wanted to plan for now.
  /// @param ended, violated Requests of the last period.
  [[nodiscard]] bool decide(std::span<const double> planned, std::span<const double> wanted,
                            std::uint64_t ended, std::uint64_t violated) const noexcept {
    if (static_cast<double>(violated) > options_.violation_threshold * static_cast<double>(ended)) {
      return true;
    }
    double planned_sum = 0;
    double wanted_sum = 0;
    for (std::size_t m = 0; m < wanted.size(); ++m) {
      if (wanted[m] > planned[m] * (1 + options_.rise)) return true;
      planned_sum += planned[m];
      wanted_sum += wanted[m];
    }
    return wanted_sum < planned_sum * (1 - options_.under_use);
  }

 private:
  options options_;
};

}  // namespace cohort::packing
