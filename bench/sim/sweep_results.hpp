// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a sweep over drawn workloads found: a line of JSON for each draw, and tables of all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::bench {

/// One search for goodput.
struct sweep_run {
  std::string policy;
  std::string gather;
  double goodput = 0;  ///< Requests a second; 0 if no rate is met.
};

/// The names of those runs of a draw that are compared with the best of its others, the rivals.
inline constexpr std::string_view untuned_name = "adaptive";
inline constexpr std::string_view tuned_name = "adaptive tuned";

/// One draw.
struct sweep_draw {
  std::uint64_t seed = 0;
  std::string name;  ///< What it is, in words.
  std::string noise;
  double duration_s = 0;      ///< Of the measured part of each run.
  double least_requests = 0;  ///< Of a model in a run at the best rival's goodput.
  std::vector<sweep_run> runs;

  /// The rival with the highest goodput, the first of equals. There must be a rival.
  [[nodiscard]] const sweep_run& best_rival() const;
  /// Goodput of the run of this name over the best rival's. Both names above must be there.
  [[nodiscard]] double over_rivals(std::string_view name) const;
};

/// The draw as one line of JSON, with its newline.
[[nodiscard]] std::string to_line(const sweep_draw& d);

/// The draws of a file of such lines; none if there is no such file. A last line without its
/// newline is of a sweep that was ended while it wrote: it is cut off, so that lines can be added.
/// @throws input_error If a line is not a draw.
[[nodiscard]] std::vector<sweep_draw> read_draws(const std::string& path);

/// In Markdown: `adaptive`, tuned and not, over the best rival, of all draws and by noise
/// (geometric mean, worst and its seed, how many are at least 1), then the draws. Those of which no
/// rival meets any rate are counted and left out of the means.
[[nodiscard]] std::string sweep_tables(std::span<const sweep_draw> draws);

}  // namespace cohort::bench
