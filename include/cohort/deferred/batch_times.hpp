// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures how long batches take, from what a scheduler sees of them: `batch_times`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/latency_estimator.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/rank.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// How a batch that ended compares with its profile.
struct batch_time {
  model_id model;
  std::uint32_t size = 0;
  bool is_known = false;  ///< Else nothing can be told.
  /// Logarithm of actual over profiled time of a batch alone on its device, the device's own factor
  /// taken out.
  double log_ratio = 0;
};

/// What batches of a model and size usually take.
struct usual_time {
  bool is_known = false;  ///< Well enough to compare devices.
  double log_ratio = 0;   ///< To the profile: logarithm of the median.
  double spread = 0;      ///< Relative.
};

/// Follows the batches of some devices from dispatch to end. Where k batches share a device, each
/// is taken to have a k-th part of it: a clock of the device's own advances at 1 / k, and a batch
/// takes what that clock says. A batch starts when it was sent for, or when the one before it in
/// its entry ended. What differs from device to device is told apart from what differs from the
/// profile. Cost: O(1) a call, no allocation but in `add_device`. Thread safety: none.
class batch_times {
 public:
  /// An idle device, under an id that may have been another's.
  void add_device(device_id d, std::uint32_t capacity) {
    if (d.index() >= devices_.size()) devices_.resize(d.index() + 1);
    devices_[d.index()] = device{.lanes = std::vector<lane>(capacity)};
  }

  /// A batch was sent to an entry.
  void on_dispatch(device_entry at, const dispatch_event& b, time_point now) noexcept {
    device& d = devices_[at.device.index()];
    lane& l = d.lanes[at.entry];
    d.pass(now);
    if (l.count == 0) ++d.at_work;
    COHORT_ASSERT(l.count < l.batches.size());
    const double until_start = to_seconds(std::max(duration{0}, b.exec_at - now));
    l.batches[l.count++] = {.model = b.model,
                            .size = b.size,
                            .work = to_seconds(b.work),
                            .start = d.clock + until_start / d.at_work};
  }

  /// The oldest batch of the entry ended.
  /// @param failed What fails takes no time that means anything.
  /// @param models `models.usual(model, size)` is the `usual_time` that the device is compared
  /// with.
  template <class Models>
  batch_time on_complete(device_entry at, time_point now, bool failed,
                         const Models& models) noexcept {
    device& d = devices_[at.device.index()];
    lane& l = d.lanes[at.entry];
    COHORT_ASSERT(l.count > 0);
    d.pass(now);
    const sent b = l.batches[0];
    l.batches[0] = l.batches[1];
    if (--l.count == 0) {
      --d.at_work;
    } else {
      l.batches[0].start = std::max(l.batches[0].start, d.clock);
    }
    const double took = d.clock - b.start;
    if (failed || took <= 0 || b.work <= 0) return {.model = b.model, .size = b.size};
    const double log_ratio = std::log(took / b.work);
    if (const usual_time known = models.usual(b.model, b.size); known.is_known) {
      d.level.add_log(log_ratio - known.log_ratio, known.spread);
      all_.add_log(log_ratio - known.log_ratio, known.spread,
                   16.0 * static_cast<double>(devices_.size()));
    }
    return {.model = b.model,
            .size = b.size,
            .is_known = true,
            .log_ratio = log_ratio - d.level.log_factor(all_)};
  }

  /// How many times as long as on the others batches take on a device; 1 unless that is
  /// significant.
  [[nodiscard]] double device_factor(device_id d) const noexcept {
    return devices_[d.index()].level.factor(all_);
  }
  /// Whether that is above 1.
  [[nodiscard]] bool is_slow(device_id d) const noexcept {
    return devices_[d.index()].level.log_factor(all_) > 0;
  }

 private:
  struct sent {
    model_id model;
    std::uint32_t size = 0;
    double work = 0;   // Seconds.
    double start = 0;  // On the device's clock.
  };
  struct lane {
    std::array<sent, rank::entry_depth> batches{};
    std::uint32_t count = 0;
  };
  struct device {
    std::vector<lane> lanes;
    double clock = 0;  // Seconds of undivided device time.
    time_point told = distant_past;
    std::uint32_t at_work = 0;  // Lanes with batches.
    level_tracker level{};

    void pass(time_point now) noexcept {
      if (at_work > 0 && now > told) clock += to_seconds(now - told) / at_work;
      told = std::max(told, now);
    }
  };

  std::vector<device> devices_;
  level_tracker all_;
};

}  // namespace cohort::deferred
