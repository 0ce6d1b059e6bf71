// SPDX-License-Identifier: Apache-2.0
/// @file
/// How settings compare with the present ones, recently and in the long run: `standing`.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cohort::deferred {

/// How settings compare with others in trials, averaged over some rounds.
struct comparison {
  double excess = 0;  ///< Difference of the score; below 0: better.
  double ratio = 1;   ///< Ratio of the cost: mean latency or devices at work.
  std::uint32_t rounds = 0;
};

/// Compares settings with the present ones over the rounds in which both were tried. The last four
/// rounds describe the present load. They judge mostly the same requests, and rare bursts are in
/// all of them or in none; so the past is a mean over sixteen times as many requests as one round
/// judges, with each round weighted by its new requests. Thread safety: none.
struct standing {
  settings which;
  double excess = 0;  ///< Difference of the score in the last rounds.
  double ratio = 1;   ///< Ratio of the cost in the last rounds.
  double rounds = 0;  ///< Number of these rounds, at most 4.
  double past_excess = 0;
  double past_spread = 0;    ///< Variance of a round's excess about it.
  double past_requests = 0;  ///< Number of requests in the past.
  double judged = 1;         ///< Requests judged in the last round.
  std::uint64_t seen = 0;    ///< Requests in total up to the last round.

  /// Adds the result of a round. @param clear An excess that differs by more from the last ones
  /// indicates another load. @param requests Judged in the round. @param arrived Requests in total.
  void add(double now, double cost_now, double clear, std::uint64_t requests,
           std::uint64_t arrived) noexcept {
    judged = static_cast<double>(std::max<std::uint64_t>(requests, 1));
    const double fresh =
        rounds > 0 ? std::min(judged, static_cast<double>(arrived - seen)) : judged;
    seen = arrived;
    if (std::abs(now - excess) > clear) rounds = 0;
    rounds = std::min(rounds + 1, most_rounds);
    excess += (now - excess) / rounds;
    ratio += (cost_now - ratio) / rounds;
    past_requests = std::min(past_requests + fresh, most_past * judged);
    const double part = std::min(fresh / past_requests, 1.0);
    const double off = now - past_excess;
    past_excess += part * off;
    past_spread += part * ((1 - part) * off * off - past_spread);
  }

  /// Chance deviation of the past: two standard errors; unbounded while it is short.
  [[nodiscard]] double past_chance() const noexcept {
    const double independent = past_requests / judged;
    return independent < least_past ? HUGE_VAL : 2 * std::sqrt(past_spread / independent);
  }

  /// The comparison over the last rounds or the past.
  [[nodiscard]] comparison why(bool of_past) const noexcept {
    return {of_past ? past_excess : excess, ratio,
            static_cast<std::uint32_t>(of_past ? past_requests / judged : rounds)};
  }

  /// Converts to a comparison with `chosen`, which becomes the present settings.
  void rebase(const standing& chosen) noexcept {
    excess -= chosen.excess;
    past_excess -= chosen.past_excess;
    ratio /= chosen.ratio;
  }
  /// The previously present settings compared with this.
  [[nodiscard]] standing of_present(const settings& present) const noexcept {
    standing s = *this;
    s.which = present;
    s.excess = s.past_excess = 0;
    s.ratio = 1;
    s.rebase(*this);
    return s;
  }

 private:
  static constexpr double most_rounds = 4;
  // Measured in rounds without a common request.
  static constexpr double most_past = 16;
  static constexpr double least_past = 3;
};

}  // namespace cohort::deferred
