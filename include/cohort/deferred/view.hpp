// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values that the policies of deferred scheduling may see; never the queue or the device.
#pragma once

#include <cohort/core/time.hpp>

#include <cstdint>

namespace cohort::deferred {

/// Measurements of the devices that a model may run on.
struct pool_view {
  /// Devices in the pool, each counted by its capacity, as latencies are; 0 until known.
  std::uint32_t devices = 0;
  double idle_fraction = 0;  ///< Recent share of device time without work, 0 to 1.
  /// Mean length of the batch on a busy device, seen at a random moment.
  duration typical_batch{0};
  /// Number of models that share the devices: (Σ w)² / Σ w² over their device times w. n equal
  /// models count as n, one that does nearly all the work as nearly 1.
  double models = 1;
};

/// Measurements of one model and of its pool.
struct load_view {
  double rate = 0;         ///< Arrivals per second over a sliding window; 0 until measured.
  double variability = 1;  ///< Squared coefficient of variation of the gaps between arrivals.
  double bad_rate = 0;     ///< Recent share of this model's requests that were dropped, 0 to 1.
  double device_part = 1;  ///< Share of device time that this model needs, 0 to 1; 1 until known.
  pool_view pool{};        ///< As of the model's last grant.
};

/// A batch that could be sent now.
struct batch_view {
  std::uint32_t size;          ///< Requests; at least 1.
  time_point deadline;         ///< Earliest deadline among them, less the delay of the result.
  time_point arrival;          ///< Earliest arrival among them.
  duration slo;                ///< The model's latency objective, less the delay of the result.
  duration latency;            ///< ℓ(size).
  duration latency_next;       ///< ℓ(size + 1), or `unbounded` if the batch cannot grow.
  std::uint32_t target = 1;    ///< The size worth protecting, from the target policy.
  duration target_latency{1};  ///< ℓ(target).
  load_view load;
  double idle_fraction = 0;  ///< Of the pool, now; `load.pool` dates from the model's last grant.
};

/// Whether a policy reads `batch_view::arrival`, which is a cache miss. A policy that does not can
/// say so by a member `bool asks_for_arrival() const noexcept`.
template <class P>
[[nodiscard]] constexpr bool asks_for_arrival(const P& policy) noexcept {
  if constexpr (requires { policy.asks_for_arrival(); }) return policy.asks_for_arrival();
  return true;
}

/// Delays between the scheduler and a device, all at least 0.
struct network_delays {
  duration control{0};           ///< Until a batch's message reaches its device.
  duration data_per_request{0};  ///< To fetch the input of one request, before the batch starts.
  duration response{0};          ///< Until a result reaches the place where its deadline is judged.
  duration wake_margin{0};       ///< Lateness of the driver's timers and of noticing completions.

  /// Time from the decision to the earliest start of a batch of `size` on an idle device.
  [[nodiscard]] constexpr duration before(std::uint32_t size) const noexcept {
    return control + data_per_request * static_cast<std::int64_t>(size);
  }
  /// How long before that start the driver must be told to wake up. Once awake it no longer needs
  /// the margin: a batch may still be sent until `before` its latest start.
  [[nodiscard]] constexpr duration lead(std::uint32_t size) const noexcept {
    return before(size) + wake_margin;
  }
  /// Time from the end on the device until the deadline is judged.
  [[nodiscard]] constexpr duration after() const noexcept { return response + wake_margin; }
};

}  // namespace cohort::deferred
