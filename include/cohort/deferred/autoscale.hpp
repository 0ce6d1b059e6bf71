// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many devices to add or release for the present load: advice, never an action.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::deferred {

/// Advice on the number of devices of a pool, with the measurements behind it.
struct autoscale_advice {
  double bad_rate = 0;       ///< Share of requests dropped, refused or late.
  double idle_fraction = 0;  ///< Share of device time without work.
  std::int64_t devices = 0;  ///< Devices to add (above 0) or to release (below 0).
};

/// Symphony's signals for a pool of N devices: with a bad rate r above a threshold, add N r / (1 −
/// r); otherwise, with idle fraction f, release N f, largest ids first (deferred scheduling keeps
/// those idle). Exact if r = (o − p) / o and f = (p − o) / p at offered rate o and peak p, so only
/// near the peak. Symphony, section 3.5.
/// @param bad_threshold Bad rate up to which no device is added; 0 to 1.
[[nodiscard]] inline autoscale_advice advise(std::uint32_t devices, double bad_rate,
                                             double idle_fraction,
                                             double bad_threshold = 0.01) noexcept {
  autoscale_advice a{.bad_rate = bad_rate, .idle_fraction = idle_fraction, .devices = 0};
  const double n = devices;
  if (bad_rate > bad_threshold) {
    // If all requests are bad, far too few devices serve; the advice is at least to double them.
    const double factor = bad_rate < 1 ? bad_rate / (1 - bad_rate) : n;
    a.devices = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(n * factor)));
  } else {
    a.devices = -static_cast<std::int64_t>(std::floor(n * idle_fraction));
    a.devices = std::max(a.devices, 1 - static_cast<std::int64_t>(devices));
  }
  return a;
}

/// One model's part of the load.
struct model_demand {
  const latency_curve* latency;  ///< ℓ(b), with the delays before a batch starts.
  duration slo;                  ///< SLO less the delay of a result; above 0.
  double rate = 0;               ///< Requests that arrive per second, whatever their outcome.
};

/// The device time that a load needs, and how it varies.
struct work_demand {
  double devices = 0;    ///< Seconds of work per second.
  double deviation = 0;  ///< Its standard deviation by chance, over the slack of a request.
  double models = 0;     ///< (Σ w)² / Σ w² over the models' work w, as in `pool_view`.
};

/// Computes the work with each model at its largest batch b that satisfies (1 + 1/N) ℓ(b) ≤ SLO,
/// for N devices that start in turn, and (b − 1) / rate + ℓ(b) ≤ SLO, for the requests that arrive
/// within the SLO. Complexity: O(models · log batch).
[[nodiscard]] inline work_demand work_of(std::span<const model_demand> models,
                                         double devices) noexcept {
  work_demand w;
  double variance = 0;
  double squares = 0;
  for (const model_demand& m : models) {
    if (!(m.rate > 0)) continue;
    const double slo = to_seconds(m.slo);
    const latency_curve& l = *m.latency;
    std::uint32_t low = 1;
    std::uint32_t high =
        std::max(1U, l.largest_within(from_seconds(slo * devices / (devices + 1))));
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if ((middle - 1) / m.rate + to_seconds(l(middle)) <= slo) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const double each = to_seconds(l(low)) / low;
    const double slack = std::max(slo - to_seconds(l(low)), slo / 10);
    w.devices += m.rate * each;
    squares += m.rate * each * m.rate * each;
    variance += m.rate * each * each / slack;
  }
  w.deviation = std::sqrt(variance);
  if (squares > 0) w.models = w.devices * w.devices / squares;
  return w;
}

/// Estimates the fewest devices with which 1 % of a load is bad: its work, at least one more device
/// if models share them (batches are indivisible), and room for chance. The three constants are
/// fitted to searches in virtual time with `adaptive` on random loads, and hold on others:
/// bench/sim/autoscale_bars. Other policies, bursts and noise need more.
/// @param factor Scales the result. @param growth Scales the load. Both above 0. @returns 1 to 10⁶.
[[nodiscard]] inline std::uint32_t devices_needed(std::span<const model_demand> models,
                                                  double factor = 1, double growth = 1) noexcept {
  const auto needed = [&](double n) {
    const work_demand w = work_of(models, n);
    if (w.devices <= 0) return 1.0;
    return factor * (growth * w.devices + 1.2 + 0.1 * std::sqrt(w.models) +
                     0.05 * std::sqrt(growth) * w.deviation);
  };
  // More devices allow larger batches, which need less work.
  constexpr double most = 1e6;
  double n = std::clamp(std::round(needed(1e9)), 1.0, most);
  while (n < most && std::round(needed(n)) > n) n = std::max(n + 1, std::floor(n * 1.005));
  return static_cast<std::uint32_t>(n);
}

/// Gives advice from windows of measurements. It computes the devices needed from the arrivals, not
/// from the losses, so it holds however far off the present number is. If the load grows, it plans
/// for the load expected when a new device starts to serve. It releases devices only when several
/// windows in a row could spare them. If requests are bad although there should be enough devices
/// (noise, bursts, optimistic profiles), it asks for more from then on, and for less again as
/// windows stay calm. A value; feed it from an observer. Thread safety: none.
class autoscale_advisor {
 public:
  struct options {
    duration window = std::chrono::seconds{10};  ///< Width of a measurement window; above 0.
    duration lead{0};                ///< Time from advice until a new device serves; at least 0.
    double bad_threshold = 0.01;     ///< Bad rate above which devices are missing; 0 to 1.
    std::uint32_t calm_windows = 3;  ///< Calm windows in a row before a release; at least 1.
  };

  /// @throws config_error If an option is outside its range.
  explicit autoscale_advisor(options o) : options_{o} {
    expects(o.window > duration{0}, "autoscale_advisor: window must be above 0");
    expects(o.lead >= duration{0}, "autoscale_advisor: lead must be at least 0");
    expects(o.bad_threshold >= 0 && o.bad_threshold <= 1,
            "autoscale_advisor: bad_threshold must be in 0 to 1");
    expects(o.calm_windows > 0, "autoscale_advisor: calm_windows must be at least 1");
    needed_.reserve(o.calm_windows);
    work_.reserve(most_work);
  }
  autoscale_advisor() : autoscale_advisor{options{}} {}

  /// Counts `ended` requests that ended or were refused, `bad` of them dropped, refused or late.
  void on_ends(std::uint64_t ended, std::uint64_t bad) noexcept {
    ended_ += ended;
    bad_ += bad;
  }
  /// Adds `busy` of device time, summed over devices, to the current window.
  void on_busy(duration busy) noexcept { busy_ += busy; }

  /// End of the current window, or `distant_past` before the first.
  [[nodiscard]] time_point window_end() const noexcept {
    return start_ == distant_past ? distant_past : start_ + options_.window;
  }
  /// Closes the window if it is over. @param devices Devices that serve. @param models Models with
  /// their rates in this window. @returns Whether `advice()` is new.
  bool advance(time_point now, std::uint32_t devices,
               std::span<const model_demand> models) noexcept {
    if (start_ == distant_past) start_ = now;
    if (now - start_ < options_.window || devices == 0) return false;
    const double capacity = to_seconds(now - start_) * devices;
    const double idle = std::clamp(1 - to_seconds(busy_) / capacity, 0.0, 1.0);
    const double bad = ended_ > 0 ? static_cast<double>(bad_) / static_cast<double>(ended_) : 0.0;
    judge(bad, devices, devices_needed(models, factor_));

    const double work = work_of(models, devices).devices;
    const std::uint32_t now_needed = devices_needed(models, factor_);
    const std::uint32_t soon_needed =
        devices_needed(models, factor_, 1 + growth(work, now - start_));
    push(needed_, options_.calm_windows, std::max(now_needed, soon_needed));
    const std::uint32_t most = *std::ranges::max_element(needed_);
    const bool is_calm = needed_.size() == options_.calm_windows && most < devices;
    const std::int64_t present = devices;
    advice_ = {
        .bad_rate = bad,
        .idle_fraction = idle,
        .devices = is_calm ? most - present : std::max<std::int64_t>(0, needed_.back() - present)};
    had_ = devices;
    start_ = now;
    ended_ = bad_ = 0;
    busy_ = duration{0};
    return true;
  }

  [[nodiscard]] const autoscale_advice& advice() const noexcept { return advice_; }
  /// How many times the devices of a usual load this load needs; at least 1.
  [[nodiscard]] double factor() const noexcept { return factor_; }

 private:
  static constexpr std::uint32_t most_raises = 4;  // After these they must have helped.
  static constexpr std::size_t most_work = 6;      // Windows used to find a trend.

  template <class T>
  static void push(std::vector<T>& into, std::size_t most, T value) noexcept {
    if (into.size() == most) into.erase(into.begin());
    into.push_back(value);
  }

  /// Corrects `factor_` by whether the computed number of devices was enough.
  void judge(double bad, std::uint32_t devices, std::uint32_t needed) noexcept {
    if (bad > options_.bad_threshold) {
      quiet_ = 0;
      // Devices that were added in this window say nothing yet.
      if (devices < needed || had_ < needed) return;
      if (raises_ == most_raises && bad > 0.5 * bad_before_) {  // More devices did not help.
        factor_ = 1;
        return;
      }
      if (raises_ == most_raises) raises_ = 0;
      if (raises_++ == 0) bad_before_ = bad;
      factor_ *= 1 + std::clamp(2 * bad, 0.05, 0.25);
      factor_ = std::min(factor_, 4.0);
    } else {
      raises_ = 0;
      if (devices > needed || ++quiet_ < options_.calm_windows) return;
      quiet_ = 0;
      factor_ = std::max(1.0, factor_ * 0.99);
    }
  }

  /// Expected relative growth of the work until a device requested now serves, by linear regression
  /// over the last windows.
  double growth(double work, duration window) noexcept {
    push(work_, most_work, work);
    const auto n = static_cast<double>(work_.size());
    if (work_.size() < 3 || work <= 0) return 0;
    double sum = 0;
    double moment = 0;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      sum += work_[i];
      moment += (static_cast<double>(i) - (n - 1) / 2) * work_[i];
    }
    const double slope = 12 * moment / (n * (n * n - 1));  // Per window.
    const double ahead = 0.5 + to_seconds(options_.lead) / to_seconds(window);
    const double then = sum / n + slope * ((n - 1) / 2 + ahead);
    return std::clamp(then / work - 1, 0.0, 1.0);
  }

  options options_;
  autoscale_advice advice_;
  time_point start_ = distant_past;
  std::uint64_t ended_ = 0;
  std::uint64_t bad_ = 0;
  duration busy_{0};
  double factor_ = 1;
  std::uint32_t raises_ = 0;           // Times the factor was raised since there were enough,
  double bad_before_ = 0;              // and the bad rate before that.
  std::uint32_t had_ = 0;              // Devices in the window before.
  std::uint32_t quiet_ = 0;            // Consecutive calm windows.
  std::vector<std::uint32_t> needed_;  // Devices needed in the last windows.
  std::vector<double> work_;           // Work in the last windows.
};

}  // namespace cohort::deferred
