// SPDX-License-Identifier: Apache-2.0
/// @file
/// When work on a device with faults ends: `device_course`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace cohort {

/// The speed of one device over time, from the faults that befall it. Where faults overlap, the
/// device hangs if any of them is a hang, and the factors of slow ones multiply. A value;
/// immutable. Instants count from the start of the run, `time_point{}`.
class device_course {
 public:
  /// How a piece of work ends.
  struct ending {
    time_point at;        ///< `never` if it never ends.
    bool failed = false;  ///< Ended by a fault.
  };

  device_course() noexcept = default;
  /// @param faults Must be valid (see `reality::validate`). Faults of other devices are ignored.
  device_course(std::span<const fault> faults, device_id d) {
    for (const fault& f : faults) {
      if (f.device != d) continue;
      const time_point from{f.at};
      const time_point to = f.lasts >= unbounded - f.at ? never : from + f.lasts;
      faults_.push_back({from, to, f.kind, f.factor});
      if (f.at > duration{0}) turns_.push_back(from);
      if (to != never) turns_.push_back(to);
    }
    std::ranges::sort(turns_);
  }

  [[nodiscard]] bool is_steady() const noexcept { return faults_.empty(); }
  /// Ratio of actual to usual time of work at an instant; infinite while the device hangs.
  [[nodiscard]] double slowness(time_point t) const noexcept {
    double slowness = 1;
    for (const span& f : faults_) {
      if (!f.covers(t)) continue;
      if (f.kind == fault_kind::hang) return HUGE_VAL;
      if (f.kind == fault_kind::slow) slowness *= f.factor;
    }
    return slowness;
  }
  /// Whether work that runs at an instant fails.
  [[nodiscard]] bool fails(time_point t) const noexcept {
    return std::ranges::any_of(
        faults_, [t](const span& f) { return f.kind == fault_kind::fail && f.covers(t); });
  }

  /// The end of work that starts at `start` and usually takes `work` ≥ 0. O(faults²).
  [[nodiscard]] ending end(time_point start, duration work) const noexcept {
    if (faults_.empty()) return {start + work};
    auto left = static_cast<double>(work.count());
    time_point now = start;
    for (auto turn = std::ranges::upper_bound(turns_, start);; ++turn) {
      if (fails(now)) return {now, true};
      const double speed = 1 / slowness(now);
      const bool is_last = turn == turns_.end();
      const double until = is_last ? HUGE_VAL : static_cast<double>((*turn - now).count());
      if (speed > 0 && left <= until * speed) {
        const double takes = left / speed;
        if (takes >= static_cast<double>((never - now).count())) return {never};
        return {now + duration{std::llround(takes)}};
      }
      if (is_last) return {never};
      left -= until * speed;
      now = *turn;
    }
  }

 private:
  struct span {
    time_point from;
    time_point to;
    fault_kind kind;
    double factor;
    [[nodiscard]] bool covers(time_point t) const noexcept { return from <= t && t < to; }
  };
  std::vector<span> faults_;
  std::vector<time_point> turns_;  // Where the speed may change, in order.
};

}  // namespace cohort
