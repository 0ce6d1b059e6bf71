// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of the servers that are numbers, and those that both have. For programs that use CLI11.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

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

/// When a device hangs or fails: --suspect-factor, --suspect-floor-ms, --hang-factor, --failures.
/// Lives until `app` has parsed; `apply` then sets what was asked for.
class health_choices {
 public:
  /// @param o Its values are the defaults.
  /// @param work What a device may keep for too long: "a batch".  @param works Several: "batches".
  health_choices(CLI::App& app, engine::health_options& o, const std::string& work,
                 const std::string& works)
      : options_{o},
        floor_ms_{to_ms(o.floor)},
        failures_{fmt::format("{}/{}", o.failures, o.window)} {
    app.add_option(
           "--suspect-factor", o.factor,
           fmt::format("A device is suspect once {} has run for so many expected times", work))
        ->check(within(1, 1000));
    app.add_option("--suspect-floor-ms", floor_ms_, "and so long")->check(within(0.001, 3.6e6));
    app.add_option("--hang-factor", o.patience,
                   "and hangs, and gets no work, once it has run for so many times as long as both")
        ->check(within(1, 1000));
    app.add_option("--failures", failures_,
                   fmt::format("A device gets no work either once K of its last N {} have failed, "
                               "K/N; N up to 64",
                               works));
  }
  health_choices(const health_choices&) = delete;  // The parser writes to it.
  health_choices& operator=(const health_choices&) = delete;

  /// @throws config_error If --failures is not K/N.
  void apply() const {
    options_.floor = from_ms(floor_ms_);
    engine::health_options& o = options_;
    const char* const end = failures_.data() + failures_.size();
    const auto k = std::from_chars(failures_.data(), end, o.failures);
    const bool has_slash = k.ec == std::errc{} && k.ptr != end && *k.ptr == '/';
    const auto n = has_slash ? std::from_chars(k.ptr + 1, end, o.window) : k;
    if (!has_slash || n.ec != std::errc{} || n.ptr != end || o.failures < 1 ||
        o.failures > o.window || o.window > 64) {
      throw config_error{
          fmt::format("--failures: \"{}\" is not allowed: expected K/N, with K from 1 to N, and N "
                      "to 64",
                      failures_)};
    }
  }

 private:
  engine::health_options& options_;
  double floor_ms_;
  std::string failures_;
};

}  // namespace cohort::registry
