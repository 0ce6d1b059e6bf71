// SPDX-License-Identifier: Apache-2.0
/// @file
/// Forecasts the rate to plan for: smoothed, with trend and a margin for chance.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace cohort::packing {

/// Forecasts one model's rate from counts of its arrivals in successive periods: an exponentially
/// weighted moving average of the level, one of the trend, and above both a margin of `deviations`
/// standard deviations of a Poisson count. Source: gpu-let, section 4.3 (the moving average).
/// Thread safety: none.
class rate_forecast {
 public:
  struct options {
    double level_weight = 0.6;  ///< Weight of the newest period in the level; in (0, 1].
    double trend_weight = 0.4;  ///< Weight of the newest change in the trend; 0 to 1; 0: no trend.
    double deviations = 2;      ///< Margin for chance; at least 0.
  };

  /// @throws config_error If an option is out of its range.
  explicit rate_forecast(options o) : options_{o} {
    expects(o.level_weight > 0 && o.level_weight <= 1,
            "rate_forecast: level_weight must be above 0 and at most 1");
    expects(o.trend_weight >= 0 && o.trend_weight <= 1,
            "rate_forecast: trend_weight must be in 0 to 1");
    expects(o.deviations >= 0 && std::isfinite(o.deviations),
            "rate_forecast: deviations must be at least 0");
  }
  rate_forecast() : rate_forecast{options{}} {}

  /// Counts one period's arrivals. @throws config_error If `period` is not above 0.
  void add(std::uint64_t arrivals, duration period) {
    expects(period > duration{0}, "rate_forecast: period must be above 0");
    const double rate = static_cast<double>(arrivals) / to_seconds(period);
    period_s_ = to_seconds(period);
    if (periods_++ == 0) {
      level_ = rate;
      return;
    }
    const double before = level_;
    level_ = options_.level_weight * rate + (1 - options_.level_weight) * (level_ + trend_);
    // Rates are not negative: a steeper trend would only delay the response to returning traffic.
    trend_ = std::max(
        -level_, options_.trend_weight * (level_ - before) + (1 - options_.trend_weight) * trend_);
  }

  /// Requests per second expected `ahead` periods after the last; 0 before the first period.
  [[nodiscard]] double expected_rps(double ahead) const noexcept {
    return std::max(0.0, level_ + ahead * trend_);
  }
  /// The rate to plan for: the larger of the present and the expected one, plus the margin.
  [[nodiscard]] double plan_rps(double ahead) const noexcept {
    const double rate = std::max(expected_rps(0), expected_rps(ahead));
    return periods_ == 0 ? 0 : rate + options_.deviations * std::sqrt(rate / period_s_);
  }
  /// Half the width of the level's confidence interval, for `deviations` of the counts.
  [[nodiscard]] double confidence_rps(double deviations) const noexcept {
    if (periods_ == 0) return 0;
    const double w = options_.level_weight;
    return deviations * std::sqrt(level_ / period_s_ * w / (2 - w));
  }

 private:
  options options_;
  double level_ = 0;  // At least 0.
  double trend_ = 0;  // At least -level_.
  double period_s_ = 1;
  std::uint64_t periods_ = 0;
};

}  // namespace cohort::packing
