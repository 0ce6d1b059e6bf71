// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a scheduler makes of the latencies that it measures: `learning`.
#pragma once

#include <cohort/core/error.hpp>

namespace cohort::deferred {

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
