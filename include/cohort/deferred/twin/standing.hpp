// SPDX-License-Identifier: Apache-2.0
/// @file
/// How settings compare with the present ones, lately and for long: `standing`.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cohort::deferred {

/// What trials said of settings beside others, on average over some rounds.
struct comparison {
  double excess = 0;  ///< Of the score; below 0: better.
  double ratio = 1;   ///< Of the cost, which is the mean latency or the devices at work.
  std::uint32_t rounds = 0;
};

/// Settings beside the present ones, over the rounds in which both were tried. The last four say
/// what the load is like now. They judge mostly the same requests, and bursts far apart are in all
/// of them or in none: the past is the mean over sixteen times as many requests as a round judges,
/// in which a round counts for what was new in it. Thread safety: none.
struct standing {
  settings which;
  double excess = 0;  ///< Of the score, in the last rounds.
  double ratio = 1;   ///< Of the cost, in the last rounds.
  double rounds = 0;  ///< That they are of: at most 4.
  double past_excess = 0;
  double past_spread = 0;    ///< Variance of a round's excess about it.
  double past_requests = 0;  ///< That it is of.
  double judged = 1;         ///< Requests of the last round.
  std::uint64_t seen = 0;    ///< Requests ever, at the last round.

  /// A round's result. @param clear An excess that differs from the last ones by more is of another
  /// load. @param requests That the round judged. @param arrived Ever.
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

  /// What chance makes of the past: two standard errors; without bound while it is short.
  [[nodiscard]] double past_chance() const noexcept {
    const double independent = past_requests / judged;
    return independent < least_past ? HUGE_VAL : 2 * std::sqrt(past_spread / independent);
  }

  /// In short, of the last rounds or of the past.
  [[nodiscard]] comparison why(bool of_past) const noexcept {
    return {of_past ? past_excess : excess, ratio,
            static_cast<std::uint32_t>(of_past ? past_requests / judged : rounds)};
  }

  /// The same beside `chosen`, which becomes the present one.
  void rebase(const standing& chosen) noexcept {
    excess -= chosen.excess;
    past_excess -= chosen.past_excess;
    ratio /= chosen.ratio;
  }
  /// How those that were present stand beside this.
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
  // In rounds without a request in common.
  static constexpr double most_past = 16;
  static constexpr double least_past = 3;
};

}  // namespace cohort::deferred
