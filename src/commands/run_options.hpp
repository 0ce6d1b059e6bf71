// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options that several subcommands share.
#pragma once

#include <formats/reality_file.hpp>
#include <formats/text.hpp>
#include "commands.hpp"

#include <cohort/sim/goodput.hpp>
#include <cohort/sim/workload.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::commands {

/// Requests a second, above 0. A simulation draws gaps in nanoseconds.
inline constexpr number_range rates{.low = 0, .high = 1e9, .above_low = true};

[[nodiscard]] inline std::uint64_t parse_seed(const std::string& seed) {
  return parse_integer("--seed", seed, integer_range{});
}

/// Lets --duration-s replace the workload's duration.
inline void apply_duration(const text_option& duration_s, sim::workload& w) {
  if (!duration_s) return;
  const double s = parse_number("--duration-s", *duration_s, {.low = 0.001, .high = 1e6});
  w.measured = from_seconds(s);
}

/// Lets --reality replace the workload's.
inline void apply_reality(const text_option& file, const std::string& workload_file,
                          sim::workload& w) {
  if (!file) return;
  if (*file == "-" && workload_file == "-") {
    fail("--reality", "-", "a file, since standard input holds the workload");
  }
  reality_spec r = read_reality(*file, w.devices);
  if (w.arrivals == sim::arrival_process::trace && !r.load.empty()) {
    throw input_error{*file + ": $.load: not allowed: a trace says when requests come"};
  }
  w.reality = std::move(r.machines);
  w.load = std::move(r.load);
}

/// The options of a search, each checked.
[[nodiscard]] inline sim::search_options parse_search(const std::string& precision,
                                                      const std::string& bad_limit,
                                                      const std::string& judge,
                                                      const std::string& seeds,
                                                      const std::string& seed) {
  sim::search_options o;
  o.precision = parse_number("--precision", precision, {.low = 1e-6, .high = 1});
  o.bad_limit = parse_number("--bad-limit", bad_limit, {.low = 0, .high = 0.999});
  if (judge != "model" && judge != "total") fail("--judge", quote_short(judge), "model or total");
  o.judge = judge == "total" ? sim::judged::total : sim::judged::each_model;
  o.seeds = static_cast<std::uint32_t>(parse_integer("--seeds", seeds, {.low = 1, .high = 1000}));
  o.seed = parse_seed(seed);
  return o;
}

/// Refuses traces and load steps: a search asks about a constant rate. @param what The subcommand.
inline void refuse_trace(const std::string& file, const sim::workload& w, std::string_view what) {
  if (!w.load.empty()) {
    throw input_error{
        fmt::format("{}: reality.load: not allowed: {} searches with a constant load", file, what)};
  }
  if (w.arrivals != sim::arrival_process::trace) return;
  fail(fmt::format("{}: $.arrivals.process", file == "-" ? "standard input" : file), "\"trace\"",
       fmt::format("poisson, gamma or uniform: {} changes the rate", what));
}

}  // namespace cohort::commands
