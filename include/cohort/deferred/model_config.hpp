// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model, as schedulers need to know it: `model_config`.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>

#include <chrono>
#include <cstdint>

namespace cohort::deferred {

/// One model. What a scheduler does with it may be learned and tuned; this stays.
struct model_config {
  latency_curve latency;  ///< ℓ(1) to ℓ(largest batch), of a batch that has its device alone.
  duration slo;           ///< Latency objective; above 0. Requests may carry other deadlines.
  std::uint32_t queue_capacity = 4096;             ///< Most requests that may wait; at least 1.
  duration rate_window = std::chrono::seconds{1};  ///< For the measured arrival rate; ≥ 16 ns.
  /// So long at most a request waits for others while a device is free: the window of its batch
  /// opens then, whatever the policy. At least 0; 0: whoever comes starts at once on a free device.
  /// For those who promise such a bound; otherwise policies know better when to start.
  duration longest_wait = unbounded;
};

}  // namespace cohort::deferred
