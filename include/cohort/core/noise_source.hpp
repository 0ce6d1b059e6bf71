// SPDX-License-Identifier: Apache-2.0
/// @file
/// Draws what `reality` leaves to chance: `noise_source` and `lateness_source`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/time.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cohort {

/// How many times as long as its profile a batch takes. Deterministic for one binary, options, seed
/// and order of calls. Thread safety: none. Allocates only where it meets a model of a larger id.
class noise_source {
 public:
  /// @param o Valid: see `reality::validate`.
  explicit noise_source(const noise_options& o = {}, std::uint64_t seed = 1)
      : options_{o}, seed_{seed}, random_{seed ^ 0x6e6f697365ULL} {}

  /// The mean factor of a model: the same whenever it is asked.
  [[nodiscard]] double bias(model_id m) {
    while (m.index() >= biases_.size()) {
      // Not from `random_`: what a model draws must not depend on when it is first met.
      std::mt19937_64 own{seed_ * 1'000'003 + biases_.size()};
      own.discard(8);  // Neighbouring seeds begin alike.
      std::uniform_real_distribution<double> part{-0.5, 0.5};
      biases_.push_back(options_.bias + options_.bias_spread * part(own));
    }
    return biases_[m.index()];
  }

  /// The factor of a batch that starts at `now`. Instants must not decrease if factors are
  /// correlated.
  [[nodiscard]] double draw(model_id m, time_point now) {
    if (options_.is_none()) return 1;
    double factor = bias(m);
    if (options_.sigma > 0) factor *= lognormal(now);
    if (options_.straggler_share > 0 && chance_(random_) < options_.straggler_share) {
      factor *= options_.straggler_factor;
    }
    return factor;
  }

 private:
  double lognormal(time_point now) {
    const auto drawn = [this] {
      return std::exp(options_.sigma * normal_(random_) - options_.sigma * options_.sigma / 2);
    };
    if (options_.correlation <= duration{0}) return drawn();
    const std::int64_t period = now.time_since_epoch() / options_.correlation;
    if (period != period_ || common_ == 0) common_ = drawn();
    period_ = period;
    return common_;
  }

  noise_options options_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> chance_{0, 1};
  std::vector<double> biases_;
  std::int64_t period_ = 0;
  double common_ = 0;  // Of the period; 0 before the first.
};

/// How late timers fire. As `noise_source`.
class lateness_source {
 public:
  /// @param o Valid: see `reality::validate`.
  explicit lateness_source(const lateness_options& o = {}, std::uint64_t seed = 1)
      : options_{o}, random_{seed ^ 0x74696d657273ULL} {}

  [[nodiscard]] duration draw() {
    if (options_.is_none()) return duration{0};
    const auto mean = static_cast<double>(options_.mean.count());
    duration late{std::llround(mean * exponential_(random_))};
    if (chance_(random_) < options_.tail_share) late += options_.tail;
    return late;
  }

 private:
  lateness_options options_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> exponential_{1};
  std::uniform_real_distribution<double> chance_{0, 1};
};

}  // namespace cohort
