// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's description for schedulers (`model_config`), and how they use the latencies that they
/// measure (`learning`).
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>

#include <chrono>
#include <cstdint>

namespace cohort::deferred {

/// One model. A scheduler may learn and tune its own behaviour; these values stay.
struct model_config {
  latency_curve latency;  ///< ℓ(1) to ℓ(largest batch), of a batch alone on its device.
  duration slo;           ///< Latency objective; above 0. Requests may carry other deadlines.
  /// Maximum number of waiting requests; at least 1.
  std::uint32_t queue_capacity = 4096;
  /// Window of the measured arrival rate; ≥ 16 ns.
  duration rate_window = std::chrono::seconds{1};
  /// Longest time that a request waits for others while a device is free: its batch's window opens
  /// then, whatever the policy. At least 0; at 0 every request starts at once on a free device. Set
  /// it only to guarantee such a bound; otherwise policies know better when to start.
  duration longest_wait = unbounded;
  /// If true, a request with a deadline beyond the SLO starts as early and is as urgent as if its
  /// deadline were the SLO. It is still dropped only for its own deadline. A request that has
  /// waited for longer than the SLO is as urgent as if it had arrived when the model's last batch
  /// started. So a heavily overloaded model gets one batch per SLO before models that meet theirs,
  /// and otherwise only the capacity that those leave.
  bool slo_steers = false;
};

/// Whether and how a scheduler learns latencies. Windows, targets, admission and expected ends then
/// assume that a batch takes ℓ(b) times the quantile `quantile` of the model's recent ratios, and
/// that a timer fires as late as the 90th percentile of recent ones.
struct learning {
  bool is_on = false;
  /// 0.5 to 0.999. With few batches the highest known quantile is used. A higher value loses fewer
  /// requests to noise, a lower one fills batches better.
  double quantile = 0.9;
  /// Largest fraction of the SLO that a batch of one is assumed to take, so that stragglers cannot
  /// shut a model out for good: above 0, at most 1.
  double most_of_slo = 0.8;

  /// @throws config_error If a field is outside its range.
  constexpr void validate() const {
    expects(quantile >= 0.5 && quantile <= 0.999, "learning: quantile must be in 0.5 to 0.999");
    expects(most_of_slo > 0 && most_of_slo <= 1, "learning: most_of_slo must be in (0, 1]");
  }
};

}  // namespace cohort::deferred
