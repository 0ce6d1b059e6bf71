// SPDX-License-Identifier: Apache-2.0
/// @file
/// A workload as an autoscale advisor sees it: `demand_of_models`.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/autoscale.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::sim {

/// A workload's models as an advisor sees them.
class demand_of_models {
 public:
  explicit demand_of_models(const workload& w) {
    const deferred::network_delays delays = w.told_delays();
    for (const model_spec& m : w.models) {
      const latency_curve run{[&m](std::uint32_t b) noexcept { return m.latency_of(b); },
                              effective_max_batch(m)};
      curves_.push_back(run.plus(delays.control, delays.data_per_request));
      demand_.push_back({nullptr, std::max(m.slo - delays.after(), duration{1}), 0});
    }
    for (std::size_t i = 0; i < curves_.size(); ++i) demand_[i].latency = &curves_[i];
  }
  demand_of_models(const demand_of_models&) = delete;
  demand_of_models& operator=(const demand_of_models&) = delete;

  /// @param rate Of each model: `rate(index)`, requests a second.
  template <class Rate>
  [[nodiscard]] const std::vector<deferred::model_demand>& at(Rate rate) {
    for (std::size_t i = 0; i < demand_.size(); ++i) demand_[i].rate = rate(i);
    return demand_;
  }

 private:
  std::vector<latency_curve> curves_;
  std::vector<deferred::model_demand> demand_;
};

}  // namespace cohort::sim
