// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model, as schedulers need to know it (`model_config`), and what they make of the latencies
/// that they measure (`learning`).
#pragma once

#include <cohort/core/error.hpp>
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
  /// Whether a request with a deadline beyond the SLO starts as early, and is as urgent, as if the
  /// SLO were its deadline. It is still given up only for its own deadline. One that has waited for
  /// more than the SLO is as urgent as if it had come when the model's last batch started: so a
  /// model with far too much to do gets one batch in the time of its SLO before models that keep
  /// theirs, and beyond that what those leave.
  bool slo_steers = false;
};

/// Whether and how a scheduler learns latencies. A batch is then taken to last ℓ(b) times what a
/// part `quantile` of the model's recent batches did not exceed, in windows, targets, admission and
/// expected ends; a timer is taken to fire as late as nine in ten of the recent ones did.
struct learning {
  bool is_on = false;
  /// 0.5 to 0.999. Of few batches no high quantile is known: then the highest that is. Higher loses
  /// fewer requests to noise, lower fills batches better.
  double quantile = 0.9;
  /// At most this part of the SLO is taken to be a batch of one's, lest stragglers shut a model out
  /// for good: above 0, at most 1.
  double most_of_slo = 0.8;

  /// @throws config_error If a field is outside its range.
  constexpr void validate() const {
    expects(quantile >= 0.5 && quantile <= 0.999, "learning: quantile must be in 0.5 to 0.999");
    expects(most_of_slo > 0 && most_of_slo <= 1, "learning: most_of_slo must be in (0, 1]");
  }
};

}  // namespace cohort::deferred
