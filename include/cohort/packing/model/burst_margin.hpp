// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans for more than the mean rate, so that random arrivals also meet their SLO.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/packing/model/latency_grid.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace cohort::packing {

/// Plans hold for regular arrivals. Within one SLO a Poisson stream brings r · SLO requests on
/// average, with a standard deviation of √(r · SLO). A plan for r (1 + deviations / √(r · SLO)) has
/// room for `deviations` of these. Tight SLOs and low rates need most. 0: as regular.
struct burst_margin {
  double deviations = 0;  ///< At least 0.

  /// The rate to plan for.
  [[nodiscard]] double plan_rps(double rate_rps, double slo_ms) const noexcept {
    return rate_rps + deviations * std::sqrt(rate_rps / slo_ms * 1e3);
  }
  /// The rates to plan for, by model of the grid. @throws config_error If `deviations` is negative.
  [[nodiscard]] std::vector<double> plan_rps(const latency_grid& grid,
                                             std::vector<double> rates_rps) const {
    expects(deviations >= 0 && std::isfinite(deviations),
            "burst_margin: deviations must be at least 0");
    for (std::size_t m = 0; m < rates_rps.size(); ++m) {
      rates_rps[m] = plan_rps(rates_rps[m], grid.slo_ms(m));
    }
    return rates_rps;
  }
};

}  // namespace cohort::packing
