// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling that adapts to measurements: `adaptive_scheduler` and its policies.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/pool_meter.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cohort::deferred {

/// The constants of the adaptive policies. The defaults were found on random workloads drawn from
/// the two model zoos; docs/deferred/adaptive.md reports results on other workloads.
struct adaptive_options {
  /// Efficiency b / ℓ(b) that the target may give up, as a multiple of the relative spread of a
  /// batch's size, √(variability / size); at least 0. At 0 the target is the staggered one.
  double spread = 0.24;
  /// Smallest width of the start window while no device is idle, as a fraction of the time that a
  /// target batch has to gather, slo − ℓ(target); 0 to 1.
  double scarce_width = 0.18;
  /// Idle fraction at and above which devices are not scarce; in (0, 1].
  double scarce_idle = 0.10;
  /// Accepted risk that no device is free when the window opens; in (0, 1).
  double risk = 0.005;
  /// How much earlier the window opens to stay within `risk`, in typical batch times; at least 0.
  double ahead = 8;
  /// A model counts as blocked if its bad rate is above `blocked_bad`, in (0, 1], the idle fraction
  /// is above `blocked_idle`, 0 to 1, and other models need at least `blocked_others` of the
  /// devices, 0 to 1.
  double blocked_bad = 0.0005;
  double blocked_idle = 0.01;
  double blocked_others = 0.25;
  /// A blocked model's batches also wait for batches at least this many times as long; at least 0.
  double blocked_length = 1.1;
  /// Efficiency that a blocked model may give up, per idle fraction above `blocked_idle`; at least
  /// 0.
  double blocked_loss = 2;
  /// Urgency gained per 0.01 of bad rate, up to 0.03, in typical batch times; at least 0.
  double boost = 0.05;
  /// If true, a batch may start as soon as a device is free or, to keep bursts together, when its
  /// first request has waited the fraction `hold` of the SLO, 0 to 1.
  bool is_eager = false;
  double hold = 0;
  /// Idle fraction above which a batch may always start at once; 0 to 1.
  double idle_valve = 0.3;
  /// If true, no request is dropped to make a larger batch: the target is 1.
  bool keeps_heads = false;

  /// @throws config_error If a field is outside its range.
  constexpr void validate() const {
    expects(spread >= 0, "adaptive: spread must be at least 0");
    expects(scarce_width >= 0 && scarce_width <= 1, "adaptive: scarce_width must be in 0 to 1");
    expects(scarce_idle > 0 && scarce_idle <= 1, "adaptive: scarce_idle must be in (0, 1]");
    expects(risk > 0 && risk < 1, "adaptive: risk must be in (0, 1)");
    expects(ahead >= 0, "adaptive: ahead must be at least 0");
    expects(blocked_bad > 0 && blocked_bad <= 1, "adaptive: blocked_bad must be in (0, 1]");
    expects(blocked_idle >= 0 && blocked_idle <= 1, "adaptive: blocked_idle must be in 0 to 1");
    expects(blocked_others >= 0 && blocked_others <= 1,
            "adaptive: blocked_others must be in 0 to 1");
    expects(blocked_length >= 0, "adaptive: blocked_length must be at least 0");
    expects(blocked_loss >= 0, "adaptive: blocked_loss must be at least 0");
    expects(boost >= 0, "adaptive: boost must be at least 0");
    expects(hold >= 0 && hold <= 1, "adaptive: hold must be in 0 to 1");
    expects(idle_valve >= 0 && idle_valve <= 1, "adaptive: idle_valve must be in 0 to 1");
  }
};

/// How crowded a model's pool is by many other models, 0 to 1: the fraction of the devices that the
/// others need, to the 16th power. Near 0 for up to a handful of models, 0.65 with 37 equal ones.
[[nodiscard]] inline double crowding(const load_view& load) noexcept {
  const double others = 1 - load.device_part;
  const double fourth = others * others * others * others;
  return fourth * fourth * fourth * fourth;
}

/// How little a model can rely on regular turns, 0 to 1, because its arrivals vary or because it is
/// one of many. At 0 the staggered schedule is the best one, and every deviation loses.
[[nodiscard]] inline double irregularity(const load_view& load) noexcept {
  return std::max(std::min(1.0, load.variability), crowding(load));
}

/// How much a model depends on other models' batches ending, 0 to 1: (1 − device_part) · c ·
/// max(min(1, variability), c) with c = min(1, models / devices)³. c is 1 if no model has enough
/// work for a device, and small if each has enough for several and so gets one regularly.
[[nodiscard]] inline double contention(const load_view& load) noexcept {
  if (load.pool.devices == 0) return 0;
  const double share = std::min(1.0, load.pool.models / load.pool.devices);
  const double c = share * share * share;
  return (1 - load.device_part) * c * std::max(std::min(1.0, load.variability), c);
}

/// The smallest batch that is nearly as efficient as the staggered one. A fluctuating queue cannot
/// fill every staggered batch; insisting on it drops requests to gain a few percent. Small batches
/// fluctuate more than large ones. Models that gain little from batching get a target near 1, so no
/// request is dropped for a larger batch. O(log max_batch). Models: `target_policy`.
class adaptive_target {
 public:
  constexpr adaptive_target() noexcept = default;
  /// @throws config_error If an option is outside its range.
  constexpr explicit adaptive_target(const adaptive_options& o) : options_{o} { o.validate(); }

  [[nodiscard]] std::uint32_t target(const load_view& load, duration slo,
                                     const latency_curve& latency) const noexcept {
    if (options_.keeps_heads) return 1;
    const std::uint32_t staggered = staggered_target{}.target(load, slo, latency);
    const auto efficiency = [&](std::uint32_t b) {
      return b / static_cast<double>(latency(b).count());
    };
    // Below 1, v itself: with nearly regular arrivals every deviation loses.
    const double varied = std::min(load.variability, std::sqrt(load.variability));
    const double loss =
        options_.spread * std::max(varied, crowding(load)) / std::sqrt(1.0 * staggered);
    const double enough = (1 - std::min(0.5, loss)) * efficiency(staggered);
    std::uint32_t low = 1;
    std::uint32_t high = staggered;
    // Efficiency grows with the batch, except for noise in a measured profile.
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (efficiency(middle) >= enough) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

 private:
  adaptive_options options_;
};
static_assert(target_policy<adaptive_target>);

/// The frontrun window, opened earlier where waiting does not pay:
/// * while devices are scarce, unless arrivals are regular: the window [d − ℓ(b + 1), d − ℓ(b)] of
///   a model with a small marginal latency is too narrow to catch a device that becomes free at
///   random;
/// * where other models' batches may occupy every device when it opens;
/// * for a model with a high bad rate although devices are idle: long batches of other models block
///   it, and a smaller batch now is better than a full one too late. The idle fraction bounds the
///   efficiency that it may give up, so that small batches cannot use up the devices. O(1). Models:
///   `window_policy`.
class adaptive_window {
 public:
  /// After this long without an event, only the present state of the pool counts.
  static constexpr duration looks_again = pool_meter::memory;

  adaptive_window() noexcept = default;
  /// @throws config_error If an option is outside its range.
  explicit adaptive_window(const adaptive_options& o) : options_{o} {
    o.validate();
    log_risk_ = std::log(o.risk);
  }

  /// Values that do not depend on the batch.
  struct prepared {
    double target_efficiency = 0;  // b / ℓ(b) of the target.
    double enough_if_blocked = 0;  // b / ℓ(b) at which a blocked model may start.
    duration early{0};             // How long before its latest start a batch may start.
    // For `reserve`:
    double contended = 0;
    double part = 0;
    double busy = 1;
    double typical = 0;
    double all_busy = 0;        // All devices are busy with chance `risk` at this busy fraction.
    std::uint32_t devices = 0;  // Number of devices that it is computed for.
  };

  [[nodiscard]] time_point opens(const batch_view& b) const noexcept {
    prepared p;
    prepare(b.load, b.slo, b.target, b.target_latency, p);
    return opens(b, p);
  }
  /// @param p Keeps the values that depend on the number of devices while it is the same.
  void prepare(const load_view& load, duration slo, std::uint32_t target, duration target_latency,
               prepared& p) const noexcept {
    const adaptive_options& o = options_;
    const double idle = load.pool.idle_fraction;
    p.target_efficiency = efficiency(target, target_latency);
    p.enough_if_blocked = may_be_blocked(load, target_latency)
                              ? (1 - o.blocked_loss * (idle - o.blocked_idle)) * p.target_efficiency
                              : HUGE_VAL;
    const double scarce = std::clamp(1 - idle / o.scarce_idle, 0.0, 1.0) * irregularity(load);
    const duration gathering = std::max(duration{0}, slo - target_latency);
    p.early = duration{static_cast<duration::rep>(o.scarce_width * scarce *
                                                  static_cast<double>(gathering.count()))};
    prepare_reserve(load, p);
  }
  [[nodiscard]] bool asks_for_arrival() const noexcept {
    return options_.is_eager && options_.hold > 0;
  }
  [[nodiscard, gnu::always_inline]] time_point opens(const batch_view& b,
                                                     const prepared& p) const noexcept {
    const adaptive_options& o = options_;
    if (asks_for_arrival()) return timeout{o.hold}.opens(b);
    if (o.is_eager || b.idle_fraction > o.idle_valve) return distant_past;
    const double efficient = efficiency(b.size, b.latency);
    if (efficient >= p.enough_if_blocked && b.load.bad_rate > o.blocked_bad) return distant_past;
    return std::min(b.deadline - b.latency_next - reserve(efficient, p),
                    b.deadline - b.latency - p.early);
  }

 private:
  /// Suppose that each of n devices is busy with chance p, and that its batch of length L has a
  /// random part left to run. No device becomes free within t with chance (p (1 − t / L))ⁿ, which
  /// equals the risk r at t = L (1 − r^(1/n) / p). `ahead` adds the models waiting for the same
  /// device. The reserve shrinks for a small batch if its model gains much from batching: it would
  /// make devices scarcer.
  [[gnu::always_inline]] static duration reserve(double efficient, const prepared& p) noexcept {
    if (p.contended == 0) return duration{0};
    const double grown = std::min(1.0, efficient / p.target_efficiency);
    return duration{
        static_cast<duration::rep>(p.contended * grown * grown * p.part / p.busy * p.typical)};
  }
  void prepare_reserve(const load_view& load, prepared& p) const noexcept {
    const pool_view& pool = load.pool;
    if (p.devices != pool.devices) {
      p.devices = pool.devices;
      p.all_busy = std::exp(log_risk_ / pool.devices);
    }
    p.busy = 1 - pool.idle_fraction;
    p.part = p.busy - p.all_busy;
    p.contended = pool.devices == 0 || p.part <= 0 ? 0 : options_.ahead * contention(load);
    p.typical = static_cast<double>(pool.typical_batch.count());
  }
  /// Whether the model counts as blocked if its bad rate is high.
  [[nodiscard]] bool may_be_blocked(const load_view& load, duration target_latency) const noexcept {
    return load.pool.idle_fraction > options_.blocked_idle &&
           1 - load.device_part >= options_.blocked_others &&
           to_seconds(load.pool.typical_batch) >=
               options_.blocked_length * to_seconds(target_latency);
  }
  static double efficiency(std::uint32_t size, duration latency) noexcept {
    return size / static_cast<double>(latency.count());
  }

  adaptive_options options_;
  double log_risk_ = std::log(adaptive_options{}.risk);
};
static_assert(preparing_window<adaptive_window>);

/// Earliest latest start first; models with a high recent bad rate get a head start. O(1). Models:
/// `priority_policy`.
class adaptive_priority {
 public:
  constexpr adaptive_priority() noexcept = default;
  /// @throws config_error If an option is outside its range.
  constexpr explicit adaptive_priority(const adaptive_options& o) : options_{o} { o.validate(); }

  [[nodiscard]] static constexpr bool asks_for_arrival() noexcept { return false; }
  [[nodiscard]] time_point urgency(const batch_view& b) const noexcept {
    const double ahead = options_.boost * std::min(b.load.bad_rate / 0.01, 3.0) *
                         static_cast<double>(b.load.pool.typical_batch.count());
    return b.deadline - b.latency - duration{static_cast<duration::rep>(ahead)};
  }

 private:
  adaptive_options options_;
};
static_assert(priority_policy<adaptive_priority>);

/// cohort's own scheduler: deferred scheduling with the adaptive policies.
using adaptive_scheduler =
    basic_scheduler<adaptive_window, drop_head, adaptive_target, adaptive_priority>;

/// Makes an adaptive scheduler with these delays and options that learns latencies.
[[nodiscard]] inline adaptive_scheduler make_adaptive_scheduler(
    network_delays delays = {}, adaptive_options o = {}, const learning& how = {.is_on = true}) {
  adaptive_scheduler s{delays, adaptive_window{o}, drop_head{}, adaptive_target{o},
                       adaptive_priority{o}};
  s.learn(how, distant_past);
  return s;
}

}  // namespace cohort::deferred
