// SPDX-License-Identifier: Apache-2.0
/// @file
/// Draws the random values that `reality` describes: `noise_source` and `lateness_source`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/time.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace cohort {

/// Draws the ratio of a batch's actual time to its profile. Deterministic for one binary, options,
/// seed and order of calls. Thread safety: none. Allocates only for a model with a larger id than
/// any before.
class noise_source {
 public:
  /// @param o, by_model As in `reality`, and valid.
  explicit noise_source(const noise_options& o = {}, std::uint64_t seed = 1,
                        std::vector<noise_options> by_model = {})
      : options_{o}, by_model_{std::move(by_model)}, seed_{seed}, random_{seed ^ 0x6e6f697365ULL} {}

  /// The mean factor of a model; every call returns the same.
  [[nodiscard]] double bias(model_id m) {
    while (m.index() >= biases_.size()) {
      // Not from `random_`: a model's draw must not depend on when the model first appears.
      std::mt19937_64 own{seed_ * 1'000'003 + biases_.size()};
      own.discard(8);  // Neighbouring seeds begin alike.
      std::uniform_real_distribution<double> part{-0.5, 0.5};
      const noise_options& o = of(model_id{static_cast<std::uint32_t>(biases_.size())});
      biases_.push_back(o.bias + o.bias_spread * part(own));
    }
    return biases_[m.index()];
  }

  /// The factor of a batch that starts at `now`. Instants must not decrease if factors are
  /// correlated.
  [[nodiscard]] double draw(model_id m, time_point now) {
    const noise_options& o = of(m);
    if (o.is_none()) return 1;
    double factor = bias(m);
    if (o.sigma > 0) factor *= std::exp(o.sigma * normal(now) - o.sigma * o.sigma / 2);
    if (o.straggler_share > 0 && chance_(random_) < o.straggler_share) {
      factor *= o.straggler_factor;
    }
    return factor;
  }

 private:
  [[nodiscard]] const noise_options& of(model_id m) const noexcept {
    return m.index() < by_model_.size() ? by_model_[m.index()] : options_;
  }

  double normal(time_point now) {
    if (options_.correlation <= duration{0}) return normal_(random_);
    const std::int64_t period = now.time_since_epoch() / options_.correlation;
    if (period != period_ || !has_common_) common_ = normal_(random_);
    period_ = period;
    has_common_ = true;
    return common_;
  }

  noise_options options_;
  std::vector<noise_options> by_model_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> chance_{0, 1};
  std::vector<double> biases_;
  std::int64_t period_ = 0;
  double common_ = 0;  // The factor of the current period.
  bool has_common_ = false;
};

/// Draws how late timers fire. Determinism and thread safety are those of `noise_source`.
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
