// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many devices more or fewer the load calls for: advice, never an action.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace cohort::deferred {

/// What the devices of a pool should become.
struct autoscale_advice {
  double bad_rate = 0;       ///< Share of requests dropped or late.
  double idle_fraction = 0;  ///< Share of device time without work.
  std::int64_t devices = 0;  ///< Devices to add (above 0) or to release (below 0).
};

/// The signals of a pool of N devices: with bad rate r above a threshold, add N r / (1 − r); else,
/// with idle fraction f, release N f, largest ids first (deferred scheduling keeps those idle).
/// Symphony, section 3.5.
/// @param bad_threshold Bad rate up to which nothing is added; 0 to 1.
[[nodiscard]] inline autoscale_advice advise(std::uint32_t devices, double bad_rate,
                                             double idle_fraction,
                                             double bad_threshold = 0.01) noexcept {
  autoscale_advice a{.bad_rate = bad_rate, .idle_fraction = idle_fraction, .devices = 0};
  const double n = devices;
  if (bad_rate > bad_threshold) {
    // All bad says only that far too few serve: the least that is asked for then is doubling.
    const double factor = bad_rate < 1 ? bad_rate / (1 - bad_rate) : n;
    a.devices = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(n * factor)));
  } else {
    a.devices = -static_cast<std::int64_t>(std::floor(n * idle_fraction));
    a.devices = std::max(a.devices, 1 - static_cast<std::int64_t>(devices));
  }
  return a;
}

/// Advice from a stream of measurements, with hysteresis: devices are added when a window was bad,
/// released only when `calm_windows` windows in a row agree, and then only what all of them could
/// spare. A value; feed it from an observer. Thread safety: none.
class autoscale_advisor {
 public:
  struct options {
    duration window = std::chrono::seconds{10};  ///< Width of a measurement; above 0.
    double bad_threshold = 0.01;     ///< Bad rate above which devices are added; 0 to 1.
    double keep_idle = 0.1;          ///< Idle share kept as head room when releasing; 0 to 1.
    std::uint32_t calm_windows = 3;  ///< Windows in a row before devices are released; at least 1.
  };

  /// @throws config_error If an option is outside its range.
  explicit autoscale_advisor(options o) : options_{o} {
    expects(o.window > duration{0}, "autoscale_advisor: window must be above 0");
    expects(o.bad_threshold >= 0 && o.bad_threshold <= 1,
            "autoscale_advisor: bad_threshold must be in 0 to 1");
    expects(o.keep_idle >= 0 && o.keep_idle <= 1, "autoscale_advisor: keep_idle must be in 0 to 1");
    expects(o.calm_windows > 0, "autoscale_advisor: calm_windows must be at least 1");
  }
  autoscale_advisor() : autoscale_advisor{options{}} {}

  /// A request ended, well or not.
  void on_end(bool bad) noexcept {
    ++ended_;
    bad_ += bad;
  }
  /// Devices did `busy` of work in total, within the current window.
  void on_busy(duration busy) noexcept { busy_ += busy; }

  /// Closes the window if it is over. @returns Whether `advice()` is new.
  bool advance(time_point now, std::uint32_t devices) noexcept {
    if (start_ == distant_past) start_ = now;
    if (now - start_ < options_.window || devices == 0) return false;
    const double capacity = to_seconds(now - start_) * devices;
    const double idle = std::clamp(1 - to_seconds(busy_) / capacity, 0.0, 1.0);
    const double bad = ended_ > 0 ? static_cast<double>(bad_) / static_cast<double>(ended_) : 0.0;
    const autoscale_advice raw =
        advise(devices, bad, std::max(0.0, idle - options_.keep_idle), options_.bad_threshold);
    advice_ = {
        .bad_rate = bad, .idle_fraction = idle, .devices = std::max<std::int64_t>(0, raw.devices)};
    if (raw.devices < 0) {
      spare_ = calm_ == 0 ? raw.devices : std::max(spare_, raw.devices);
      if (++calm_ >= options_.calm_windows) {
        advice_.devices = spare_;
        calm_ = 0;
      }
    } else {
      calm_ = 0;
    }
    start_ = now;
    ended_ = bad_ = 0;
    busy_ = duration{0};
    return true;
  }

  [[nodiscard]] const autoscale_advice& advice() const noexcept { return advice_; }

 private:
  options options_;
  autoscale_advice advice_;
  time_point start_ = distant_past;
  std::uint64_t ended_ = 0;
  std::uint64_t bad_ = 0;
  duration busy_{0};
  std::uint32_t calm_ = 0;
  std::int64_t spare_ = 0;
};

}  // namespace cohort::deferred
