// SPDX-License-Identifier: Apache-2.0
/// @file
/// The random values that a run drew from its `reality`: `reality_record`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::sim {

/// The values drawn over the whole run.
struct reality_record {
  /// For one model: actual over profiled times of its batches.
  struct model {
    std::uint64_t batches = 0;
    double bias = 1;          ///< Its configured mean factor.
    double mean_factor = 1;   ///< Mean drawn, without device faults; 1 without batches.
    double worst_factor = 1;  ///< The largest.
  };
  /// For one device.
  struct device {
    std::uint64_t batches = 0;
    std::uint64_t failed = 0;
    std::uint64_t hung = 0;  ///< Batches that never end.
  };

  std::vector<model> models;
  std::vector<device> devices;
  std::uint64_t wakes = 0;  ///< Wakes of the driver by timers.
  duration late_sum{0};
  duration late_worst{0};

  [[nodiscard]] double late_mean_ms() const noexcept {
    return wakes > 0 ? to_ms(late_sum) / static_cast<double>(wakes) : 0;
  }
  void drew(model_id m, double factor) {
    model& r = models[m.index()];
    ++r.batches;
    r.mean_factor += (factor - r.mean_factor) / static_cast<double>(r.batches);
    r.worst_factor = r.batches == 1 ? factor : std::max(r.worst_factor, factor);
  }
  void sent(device_id d, bool failed, bool hung) {
    device& r = devices[d.index()];
    ++r.batches;
    r.failed += failed;
    r.hung += hung;
  }
  void woke(duration late) {
    ++wakes;
    late_sum += late;
    late_worst = std::max(late_worst, late);
  }
};

}  // namespace cohort::sim
