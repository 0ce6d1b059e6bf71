// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model shard holds of one model: `model_state`.
#pragma once

#include <cohort/core/rate_tracker.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/learned_latency.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/deferred/view.hpp>

#include <cstdint>

namespace cohort::deferred {

/// A model with those who wait for it, what was measured of it, and the candidate that its rank
/// knows. Moves from shard to shard as a whole; allocates only when it is made or copied.
/// Thread safety: none.
struct model_state {
  model_state(const model_config& c, std::uint32_t sharing, const network_delays& delays)
      : rate{c.rate_window},
        slo{c.slo - delays.after()},
        longest_wait{c.longest_wait},
        queue{c.queue_capacity},
        latency{c.latency, slo, sharing, delays} {}

  /// Follows the share of dropped requests over about the last 512.
  void resolved(bool dropped) noexcept {
    load.bad_rate += ((dropped ? 1.0 : 0.0) - load.bad_rate) / 512;
  }

  // What an arrival needs lies together: the end of `rate`, the beginning of `latency`, and all
  // between them.
  rate_tracker rate;
  duration slo;  ///< Less the delay after the end.
  duration longest_wait;
  request_queue queue;
  std::uint64_t arrivals = 0;
  std::uint32_t target = 1;
  candidate published{};
  load_view load{};
  learned_latency latency;
};

}  // namespace cohort::deferred
