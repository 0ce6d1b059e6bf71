// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures batch times from a scheduler's own events: `batch_times`.
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

/// How the time of an ended batch compares with its profile.
struct batch_time {
  model_id model;
  std::uint32_t size = 0;
  bool is_known = false;  ///< If false, the other fields mean nothing.
  /// Logarithm of actual over profiled time, for a batch alone on its device; the device's own
  /// factor is divided out.
  double log_ratio = 0;
};

/// The usual time of batches of a model and size.
struct usual_time {
  bool is_known = false;  ///< Known well enough to compare devices.
  double log_ratio = 0;   ///< Logarithm of the median over the profiled time.
  double spread = 0;      ///< Relative spread.
};

/// Follows the batches of some devices from dispatch to end. Batches that share a device are
/// assumed to share it equally: with k of them the device's own clock advances at 1 / k, and it
/// measures a batch's time. A batch starts when it was sent or when the previous batch of its entry
/// ended. Differences between devices are kept apart from differences to the profile. Cost: O(1) a
/// call, no allocation except in `add_device`. Thread safety: none.
class batch_times {
 public:
  /// Adds an idle device; its id may have belonged to a removed one.
  void add_device(device_id d, std::uint32_t capacity) {
    if (d.index() >= devices_.size()) devices_.resize(d.index() + 1);
    devices_[d.index()] = device{.lanes = std::vector<lane>(capacity)};
  }

  /// Notes that a batch was sent to an entry.
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

  /// Notes that the oldest batch of the entry ended.
  /// @param failed If true, its time is ignored.
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

  /// How many times as long batches take on this device as on the others; 1 unless significant.
  [[nodiscard]] double device_factor(device_id d) const noexcept {
    return devices_[d.index()].level.factor(all_);
  }
  /// Whether `device_factor` is above 1.
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
    std::uint32_t at_work = 0;  // Entries with batches.
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
