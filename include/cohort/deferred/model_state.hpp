// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model shard holds of one model: `model_state`, and `prepared_model` with what its window
/// policy has worked out ahead.
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

/// A model with those who wait for it, what was measured of it, and the candidate that its rank
/// knows. Moves from shard to shard as a whole; allocates only when it is made or copied.
/// Thread safety: none.
struct model_state {
  model_state(const model_config& c, std::uint32_t sharing, const network_delays& delays)
      : slo{c.slo - delays.after()},
        rate{c.rate_window},
        queue{c.queue_capacity},
        longest_wait{c.longest_wait},
        slo_steers{c.slo_steers},
        latency{c.latency, slo, sharing, delays} {}

  /// What the policies may know of its arrivals, now that a tick has passed or ℓ(b) has changed.
  void measure() noexcept {
    load.rate = rate.rate();
    load.variability = rate.variability();
    if (load.pool.devices > 0) {
      const double each = to_seconds(latency.run()(target)) / target;
      load.device_part = std::min(1.0, load.rate * each / load.pool.devices);
    }
  }
  /// A batch of `size` as policies see it, if its first request has this deadline, less the delay
  /// after the end. @param size 1 to the largest.
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
  /// The deadline that windows go by, of a batch whose first request has this one.
  [[nodiscard, gnu::always_inline]] time_point aim(time_point deadline,
                                                   const request& first) const noexcept {
    return slo_steers ? std::min(deadline, first.arrival + slo) : deadline;
  }
  /// The batch as far as its first request is in time on a slow device; at least that, for only
  /// work shows whether the device is still slow.
  [[nodiscard]] std::uint32_t shortened(std::uint32_t size, time_point now,
                                        const grant& g) const noexcept {
    const duration left = queue.first_deadline() - std::max(now, g.free_at);
    return std::clamp(latency.sent().largest_within(stretched(left, 1 / g.slowness)), 1U, size);
  }

  /// Follow the share of dropped requests over about the last 512.
  void dropped() noexcept { load.bad_rate += (1 - load.bad_rate) / 512; }
  void served(std::uint32_t count, time_point at) noexcept {
    served_at = at;
    for (; count > 0; --count) load.bad_rate *= 511.0 / 512;
    if (load.bad_rate < 1e-30) load.bad_rate = 0;  // Numbers near the least one are slow.
  }

  // What an arrival needs lies in three lines of the cache: the end of `rate`, the beginning of
  // `latency`, and all between them. What does not count for policies that do not ask is apart.
  load_view load{};
  duration slo;                             ///< Less the delay after the end.
  [[no_unique_address]] rate_tracker rate;  // The next two are in its last line.
  std::uint64_t arrivals = 0;
  std::uint32_t target = 1;
  alignas(64) request_queue queue;
  duration longest_wait;
  bool slo_steers;
  time_point looked_at = never;  ///< When its shard has a timer to look at `published`.
  alignas(64) candidate published{};
  time_point served_at = distant_past;  ///< When its last batch started.
  learned_latency latency;
};

/// What a shard with this window policy holds of one model. Whoever changes `load`, `target` or
/// latencies calls `forget`; where the policy is replaced, `replace`. Thread safety: none.
template <window_policy Window>
struct prepared_model : model_state {
  explicit prepared_model(model_state&& m) noexcept : model_state{std::move(m)} {}

  [[gnu::always_inline]] time_point opens(const Window& window, const batch_view& b) noexcept {
    return window.opens(b);
  }
  void forget() noexcept {}
  void replace() noexcept {}
};

/// For policies that work out ahead what stays from one request to the next: done when it is asked
/// for the first time after something has changed, which is about once a batch.
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

  alignas(64) bool is_prepared = false;  // With what is asked for most, one line of the cache.
  typename Window::prepared prepared{};
};

}  // namespace cohort::deferred
