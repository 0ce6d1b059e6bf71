// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of the servers that are numbers, and those that both have. For programs that use CLI11.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

namespace cohort::registry {

/// What is wrong with a text that should be a number in [least, most]; empty if nothing is.
inline std::string objection(const std::string& text, double least, double most) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && v >= least && v <= most) return {};  // Not so for nan.
  return fmt::format("{} is not allowed: expected a number in {} to {}", text, least, most);
}

/// The same for CLI11, whose own Range accepts nan.
inline CLI::Validator within(double least, double most) {
  return {[=](const std::string& text) { return objection(text, least, most); },
          fmt::format("{} to {}", least, most)};
}

/// When a device hangs: --suspect-factor, --suspect-floor-ms, --hang-factor. Lives until `app` has
/// parsed; then its `floor_ms` is the one asked for.
struct hang_options {
  /// @param o Its values are the defaults; its factors are set as the options are parsed.
  /// @param work What a device may keep for too long: "a batch".
  hang_options(CLI::App& app, engine::health_options& o, const std::string& work)
      : floor_ms{to_ms(o.floor)} {
    app.add_option(
           "--suspect-factor", o.factor,
           fmt::format("A device is suspect once {} has run for so many expected times", work))
        ->check(within(1, 1000));
    app.add_option("--suspect-floor-ms", floor_ms, "and so long")->check(within(0.001, 3.6e6));
    app.add_option("--hang-factor", o.patience,
                   "and hangs, and gets no work, once it has run for so many times as long as both")
        ->check(within(1, 1000));
  }
  hang_options(const hang_options&) = delete;  // The parser writes to it.
  hang_options& operator=(const hang_options&) = delete;

  double floor_ms;
};

}  // namespace cohort::registry
