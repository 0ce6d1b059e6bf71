// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides when to make a new plan.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>

namespace cohort::packing {

/// Reasons for a new plan.
enum class replan_cause : std::uint8_t {
  none,        ///< None: the plan in service stays.
  violations,  ///< Too many requests missed their SLO.
  rise,        ///< A rate needs more than the plan was made for.
  spare,       ///< The plan is much larger than needed.
};

/// Decides at the end of each period whether to make a new plan: if too many requests missed their
/// SLO, if a rate exceeds what the plan in service was made for, margin included, or if the plan is
/// much larger than needed. Plans have margins so that they last: a rate within them varies but has
/// not changed. A pure function. Source: gpu-let, section 4.1. Thread safety: immutable.
class replan_policy {
 public:
  struct options {
    duration period = std::chrono::seconds{20};  ///< How often to decide; above 0.
    double violation_threshold = 0.01;  ///< Largest part of requests late or dropped; 0 to 1.
    double rise =
        0.0;  ///< Largest excess of a rate over its planned rate, as a part of that; at least 0.
    double under_use = 0.15;  ///< Largest shortfall of all rates from the plan; 0 to 1.
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

  /// Whether too many requests missed their SLO.
  [[nodiscard]] bool violates(std::uint64_t ended, std::uint64_t violated) const noexcept {
    return static_cast<double>(violated) >
           options_.violation_threshold * static_cast<double>(ended);
  }

  /// @param asked By model: the rate that the plan in service was made for, with its margins.
  /// @param needed Rates expected now, without margins. @param wanted Rates that a plan made now
  /// would be for. All of equal length. @param ended, violated Requests of the last period.
  [[nodiscard]] replan_cause decide(std::span<const double> asked, std::span<const double> needed,
                                    std::span<const double> wanted, std::uint64_t ended,
                                    std::uint64_t violated) const noexcept {
    double asked_sum = 0;
    double wanted_sum = 0;
    for (std::size_t m = 0; m < wanted.size(); ++m) {
      if (needed[m] > asked[m] * (1 + options_.rise)) return replan_cause::rise;
      asked_sum += asked[m];
      wanted_sum += wanted[m];
    }
    if (violates(ended, violated)) return replan_cause::violations;
    return wanted_sum < asked_sum * (1 - options_.under_use) ? replan_cause::spare
                                                             : replan_cause::none;
  }

 private:
  options options_;
};

}  // namespace cohort::packing
