// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model shard's state of one model: `model_state`, and `prepared_model` with the values that its
/// window policy computes in advance.
#pragma once

#include <cohort/core/rate_tracker.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/learned_latency.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace cohort::deferred {

/// A model with its waiting requests, its measurements, and the candidate that its rank knows. It
/// moves from shard to shard as a whole; allocates only when made or copied. Thread safety: none.
struct model_state {
  model_state(const model_config& c, std::uint32_t sharing, const network_delays& delays)
      : slo{c.slo - delays.after()},
        rate{c.rate_window},
        queue{c.queue_capacity},
        longest_wait{c.longest_wait},
        slo_steers{c.slo_steers},
        latency{c.latency, slo, sharing, delays} {}

  /// Updates the policies' view of its arrivals after a tick of the rate or a change of ℓ(b).
  void measure() noexcept {
    load.rate = rate.rate();
    load.variability = rate.variability();
    if (load.pool.devices > 0) {
      const double each = to_seconds(latency.run()(target)) / target;
      load.device_part = std::min(1.0, load.rate * each / load.pool.devices);
    }
  }
  /// The policies' view of a batch whose first request has this deadline, less the delay after the
  /// end. @param size 1 to the largest.
  [[nodiscard, gnu::always_inline]] batch_view view_of(std::uint32_t size, time_point deadline,
                                                       time_point arrival,
                                                       double idle_fraction) const noexcept {
    const latency_curve& run = latency.run();
    return {.size = size,
            .deadline = deadline,
            .arrival = arrival,
            .slo = slo,
            .latency = run.at(size),
            .latency_next = run.at(size + 1),
            .target = target,
            .target_latency = run.at(target),
            .load = load,
            .idle_fraction = idle_fraction};
  }
  /// The deadline that windows use for a batch whose first request has this deadline.
  [[nodiscard, gnu::always_inline]] time_point aim(time_point deadline,
                                                   const request& first) const noexcept {
    return slo_steers ? std::min(deadline, first.arrival + slo) : deadline;
  }
  /// The largest batch, at most `size`, whose first request is in time on a slow device; at least
  /// 1, because only work shows whether the device is still slow.
  [[nodiscard]] std::uint32_t shortened(std::uint32_t size, time_point now,
                                        const grant& g) const noexcept {
    const duration left = queue.first_deadline() - std::max(now, g.free_at);
    return std::clamp(latency.sent().largest_within(stretched(left, 1 / g.slowness)), 1U, size);
  }

  /// These track the share of dropped requests over about the last 512.
  void dropped() noexcept { load.bad_rate += (1 - load.bad_rate) / 512; }
  void served(std::uint32_t count, time_point at) noexcept {
    served_at = at;
    for (; count > 0; --count) load.bad_rate *= 511.0 / 512;
    if (load.bad_rate < 1e-30) load.bad_rate = 0;  // Subnormal numbers are slow.
  }

  // An arrival needs three cache lines: the end of `rate`, the start of `latency`, and the one
  // between them. Data that only some policies use is kept apart.
  load_view load{};
  duration slo;                             ///< SLO less the delay after the end.
  [[no_unique_address]] rate_tracker rate;  // The next two share its last line.
  std::uint64_t arrivals = 0;
  std::uint32_t target = 1;
  alignas(64) request_queue queue;
  duration longest_wait;
  bool slo_steers;
  time_point looked_at = never;  ///< When its shard's timer looks at `published`.
  alignas(64) candidate published{};
  time_point served_at = distant_past;  ///< Start of its last batch.
  learned_latency latency;
};

/// A shard's state of one model under this window policy. Call `forget` after a change of `load`,
/// `target` or latencies, and `replace` after a change of the policy. Thread safety: none.
template <window_policy Window>
struct prepared_model : model_state {
  explicit prepared_model(model_state&& m) noexcept : model_state{std::move(m)} {}

  [[gnu::always_inline]] time_point opens(const Window& window, const batch_view& b) noexcept {
    return window.opens(b);
  }
  void forget() noexcept {}
  void replace() noexcept {}
};

/// For policies that compute in advance the values shared by several requests: on the first use
/// after a change, about once per batch.
template <preparing_window Window>
struct prepared_model<Window> : model_state {
  explicit prepared_model(model_state&& m) noexcept : model_state{std::move(m)} {}

  [[gnu::always_inline]] time_point opens(const Window& window, const batch_view& b) noexcept {
    if (!is_prepared) [[unlikely]]
      prepare(window);
    return window.opens(b, std::as_const(prepared));
  }
  void forget() noexcept { is_prepared = false; }
  void replace() noexcept {
    is_prepared = false;
    prepared = {};
  }

 private:
  [[gnu::noinline]] void prepare(const Window& window) noexcept {
    window.prepare(load, slo, target, latency.run()(target), prepared);
    is_prepared = true;
  }

  alignas(64) bool is_prepared = false;  // On one cache line with the most used values.
  typename Window::prepared prepared{};
};

}  // namespace cohort::deferred
