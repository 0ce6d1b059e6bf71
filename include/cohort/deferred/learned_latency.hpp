// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's latencies as a scheduler counts on them: `learned_latency`.
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

/// ℓ(b) of one model as it counts now: the profile, as many times as batches may share a device,
/// times what was learned of its batches. Allocates when it is made or copied alone.
/// Thread safety: none.
class learned_latency {
 public:
  /// @param slo The objective less the delay after the end; above 0.
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

  /// From now on so many batches share a device, at least 1. O(max_batch).
  void share(std::uint32_t sharing) noexcept {
    sharing_ = sharing;
    apply();
  }
  /// A batch has ended. @returns Whether it is time to `correct`: curves are long, and need not
  /// follow every batch. O(1).
  bool add(const batch_time& t) noexcept {
    const bool shifted = batches_.add_log(t.size, t.log_ratio);
    const std::uint64_t n = batches_.count();
    return shifted || n % 32 == 0 || (n < 32 && n % 8 == 0);
  }
  /// Takes over what was learned, if it differs by more than a hundredth or was not for long.
  /// O(max_batch) if it does. @returns Whether latencies have changed.
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
  /// Takes over the batches that another has seen of the same model.
  void assume(const learned_latency& other) { batches_ = other.batches_; }

  /// ℓ(b) alone on a device, as the model was added.
  [[nodiscard]] const latency_curve& profile() const noexcept { return profile_; }
  /// ℓ(b) as it counts.
  [[nodiscard]] const latency_curve& run() const noexcept { return run_; }
  /// The same and the delay before the start.
  [[nodiscard]] const latency_curve& sent() const noexcept { return is_delayed_ ? sent_ : run_; }
  /// What was learned: all batches, whether or not it counts.
  [[nodiscard]] const latency_estimator& batches() const noexcept { return batches_; }
  /// What it makes ℓ(b) count for, in multiples of the profile; 1 if it does not count.
  [[nodiscard]] double correction(std::uint32_t size) const noexcept {
    return is_corrected_ ? factor_ * batches_.size_factor(size) : 1;
  }
  /// What batches of a size usually take.
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
  bool is_delayed_;  // Else `sent_` would be `run_` once more, in other lines of the cache.
  latency_curve sent_;
  latency_curve profile_;
  duration slo_;
  network_delays delays_;
  latency_estimator batches_;
  bool is_corrected_ = false;
  double factor_ = 1;  // On every ℓ(b), as learned; sizes have theirs on top.
  std::uint32_t sharing_ = 1;
};

}  // namespace cohort::deferred
