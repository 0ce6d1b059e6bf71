// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures how much slower two batches run side by side than alone, on a machine with varying
/// speed: in turns, each compared with the solo runs before and after it. Uses no clock itself.
#pragma once

#include <cohort/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::commands {

/// The median; for an even number, the mean of the middle two. @param of Not empty.
[[nodiscard]] inline double middle_of(std::vector<double> of) {
  std::ranges::sort(of);
  const std::size_t half = of.size() / 2;
  return of.size() % 2 == 1 ? of[half] : (of[half - 1] + of[half]) / 2;
}

/// Runs a pair of batches: `alone(side)` returns the latency of a few runs of side 0 or 1 while the
/// other side is idle, `together()` those of both while both run continuously; in ms.
template <class M>
concept pair_machine = requires(M& m, std::size_t side) {
  { m.alone(side) } -> std::same_as<double>;
  { m.together() } -> std::same_as<std::array<double, 2>>;
};

/// Measurements of one side of a pair.
struct side_times {
  double alone_ms = 0;   ///< Median of the solo runs.
  double beside_ms = 0;  ///< Median of the runs side by side.
  double factor = 1;     ///< Median over turns of beside / (mean of the solos before and after it).
  /// Median of |later / earlier - 1| of solo runs one turn apart: the machine's own variation.
  double noise = 0;
};

/// Runs solo, side by side, solo, ..., side by side, solo. A drift of the machine cancels to first
/// order, and a single turn with a change has little effect.
/// @param turns Number of turns side by side; at least 1.
template <pair_machine Machine>
[[nodiscard]] std::array<side_times, 2> measure_turns(Machine& machine, std::uint32_t turns) {
  expects(turns > 0, "measure_turns: turns must be at least 1");
  std::array<std::vector<double>, 2> alone;
  std::array<std::vector<double>, 2> beside;
  for (std::uint32_t turn = 0;; ++turn) {
    for (std::size_t side = 0; side < 2; ++side) alone[side].push_back(machine.alone(side));
    if (turn == turns) break;
    const std::array<double, 2> both = machine.together();
    for (std::size_t side = 0; side < 2; ++side) beside[side].push_back(both[side]);
  }
  std::array<side_times, 2> out;
  for (std::size_t side = 0; side < 2; ++side) {
    std::vector<double> factors;
    std::vector<double> changes;
    for (std::size_t i = 0; i < turns; ++i) {
      const double before = alone[side][i];
      const double after = alone[side][i + 1];
      factors.push_back(beside[side][i] / ((before + after) / 2));
      changes.push_back(std::abs(after / before - 1));
    }
    out[side] = {.alone_ms = middle_of(alone[side]),
                 .beside_ms = middle_of(beside[side]),
                 .factor = middle_of(factors),
                 .noise = middle_of(changes)};
  }
  return out;
}

/// Repeats `measure_turns` until both sides satisfy `may_be`; nothing if no try does. A machine
/// that stalls for longer than a block spoils all turns of a try.
/// @param tries At least 1.
template <pair_machine Machine, std::predicate<const side_times&> MayBe>
[[nodiscard]] std::optional<std::array<side_times, 2>> measure_turns_until(Machine& machine,
                                                                           std::uint32_t turns,
                                                                           std::uint32_t tries,
                                                                           MayBe may_be) {
  for (std::uint32_t i = 0; i < tries; ++i) {
    const std::array<side_times, 2> t = measure_turns(machine, turns);
    if (may_be(t[0]) && may_be(t[1])) return t;
  }
  return std::nullopt;
}

}  // namespace cohort::commands
