// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random variation of message delays to devices: `network_jitter` and `jitter_source`.
#pragma once

#include <cohort/core/time.hpp>

#include <cmath>
#include <cstdint>
#include <random>

namespace cohort::sim {

/// Variation of the delay of a batch's message and data on the way to their device. Policies only
/// know the usual delay.
struct network_jitter {
  double sigma = 0;  ///< Standard deviation of the logarithm; the mean is the usual delay; 0 to 3.
  duration tail{0};  ///< Extra delay of some messages; at least 0.
  double tail_share = 0;  ///< Fraction of these messages, 0 to 1.

  [[nodiscard]] bool is_none() const noexcept {
    return sigma == 0 && (tail == duration{0} || tail_share == 0);
  }
};

/// Deterministic for one binary, jitter, seed and order of calls. Thread safety: none.
class jitter_source {
 public:
  explicit jitter_source(const network_jitter& j = {}, std::uint64_t seed = 1)
      : jitter_{j}, random_{seed ^ 0x6e6574776f726bULL} {}

  /// Draws the delay of one batch with the usual delay `usual`.
  [[nodiscard]] duration draw(duration usual) {
    if (jitter_.is_none()) return usual;
    duration d = usual;
    if (jitter_.sigma > 0) {
      const double s = jitter_.sigma;
      d = duration{std::llround(static_cast<double>(usual.count()) *
                                std::exp(s * normal_(random_) - s * s / 2))};
    }
    if (chance_(random_) < jitter_.tail_share) d += jitter_.tail;
    return d;
  }

 private:
  network_jitter jitter_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> chance_{0, 1};
};

}  // namespace cohort::sim
