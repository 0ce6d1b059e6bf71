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

/// Why to plan anew.
enum class replan_cause : std::uint8_t {
  none,        ///< Nothing to gain: the plan in service stays.
  violations,  ///< Too many requests missed their SLO.
  rise,        ///< A rate needs more than the plan was made for.
  spare,       ///< The plan is much larger than it need be.
};

/// Decides at the end of each period whether to plan anew: if too many requests missed their SLO,
/// if a rate needs more than the plan in service was made for, margin included, or if the plan is
/// much larger than it need be. A plan is made with margins so that it lasts: as long as a rate
/// stays within them it has not changed, it only varies. A pure decision on what it is given.
/// Source: gpu-let, section 4.1. Thread safety: immutable.
class replan_policy {
 public:
  struct options {
    duration period = std::chrono::seconds{20};  ///< How often to decide; above 0.
    double violation_threshold = 0.01;  ///< Part of requests late or dropped, above which; 0 to 1.
    double rise =
        0.0;  ///< A rate needs more than it was planned for, by more than this part; at least 0.
    double under_use = 0.15;  ///< All rates together below the plan by more than this part; 0 to 1.
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

  /// Whether more requests missed their SLO than may.
  [[nodiscard]] bool violates(std::uint64_t ended, std::uint64_t violated) const noexcept {
    return static_cast<double>(violated) >
           options_.violation_threshold * static_cast<double>(ended);
  }

  /// @param asked By model: the rate that the plan in service was made for, with its margins.
  /// @param needed What is expected now, without any; @param wanted what a plan made now would be
  /// for. All three as long. @param ended, violated Requests of the last period.
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
