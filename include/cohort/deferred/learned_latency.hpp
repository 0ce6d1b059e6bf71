// SPDX-License-Identifier: Apache-2.0
/// @file
/// The latencies of a model that a scheduler plans with: `learned_latency`.
#pragma once

#include <cohort/core/latency_estimator.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

namespace cohort::deferred {

/// The present ℓ(b) of one model: the profile, times the number of batches that may share a device,
/// times the learned correction. Allocates only when made or copied. Thread safety: none.
class learned_latency {
 public:
  /// @param slo The SLO less the delay after the end; above 0.
  learned_latency(latency_curve profile, duration slo, std::uint32_t sharing,
                  const network_delays& delays)
      : run_{profile},
        is_delayed_{delays.before(1) > duration{0}},
        sent_{profile},
        profile_{std::move(profile)},
        slo_{slo},
        delays_{delays} {
    share(sharing);
  }

  /// Sets how many batches share a device, at least 1. O(max_batch).
  void share(std::uint32_t sharing) noexcept {
    sharing_ = sharing;
    apply();
  }
  /// Adds the time of an ended batch. @returns Whether it is time to `correct`: curves are long and
  /// need not follow every batch. O(1).
  bool add(const batch_time& t) noexcept {
    const bool shifted = batches_.add_log(t.size, t.log_ratio);
    const std::uint64_t n = batches_.count();
    return shifted || n % 32 == 0 || (n < 32 && n % 8 == 0);
  }
  /// Applies the learned correction if it differs by more than 1 % or has not been applied for
  /// long. O(max_batch) if it does. @returns Whether latencies have changed.
  bool correct(const learning& how) noexcept {
    if (!how.is_on && !is_corrected_) return false;
    double factor = 1;
    if (how.is_on) {
      const double alone = to_seconds(profile_(1)) * sharing_ * batches_.size_factor(1);
      factor = std::min(batches_.quantile(how.quantile),
                        std::max(1.0, how.most_of_slo * to_seconds(slo_) / alone));
    }
    const bool is_same = std::abs(factor - factor_) <= 0.01 * factor_;
    if (is_same && is_corrected_ == how.is_on && batches_.count() % 512 != 0) return false;
    is_corrected_ = how.is_on;
    factor_ = factor;
    apply();
    return true;
  }
  /// Takes over another's observations of the same model.
  void assume(const learned_latency& other) { batches_ = other.batches_; }

  /// ℓ(b) alone on a device, as given when the model was added.
  [[nodiscard]] const latency_curve& profile() const noexcept { return profile_; }
  /// ℓ(b) as planned with.
  [[nodiscard]] const latency_curve& run() const noexcept { return run_; }
  /// The same plus the delay before the start.
  [[nodiscard]] const latency_curve& sent() const noexcept { return is_delayed_ ? sent_ : run_; }
  /// Learned from all batches, whether or not it is applied.
  [[nodiscard]] const latency_estimator& batches() const noexcept { return batches_; }
  /// Factor that it applies to the profile at a size; 1 if nothing is applied.
  [[nodiscard]] double correction(std::uint32_t size) const noexcept {
    return is_corrected_ ? factor_ * batches_.size_factor(size) : 1;
  }
  /// Usual time of batches of a size.
  [[nodiscard]] usual_time usual(std::uint32_t size) const noexcept {
    if (batches_.count() < 32) return {};
    return {.is_known = true, .log_ratio = batches_.log_middle(size), .spread = batches_.spread()};
  }

 private:
  void apply() noexcept {
    double factor = 1;
    run_.follow(profile_, duration{0}, duration{0}, [&](std::uint32_t b) {
      if (std::has_single_bit(b)) factor = sharing_ * correction(b);  // Sizes go by octaves.
      return factor;
    });
    if (is_delayed_)
      sent_.follow(run_, delays_.before(0), delays_.data_per_request,
                   [](std::uint32_t) { return 1.0; });
  }

  latency_curve run_;
  bool is_delayed_;  // If false, `sent_` would equal `run_` in other cache lines.
  latency_curve sent_;
  latency_curve profile_;
  duration slo_;
  network_delays delays_;
  latency_estimator batches_;
  bool is_corrected_ = false;
  double factor_ = 1;  // Learned factor of every ℓ(b); sizes have their own on top.
  std::uint32_t sharing_ = 1;
};

}  // namespace cohort::deferred
