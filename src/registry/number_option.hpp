// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options that are numbers or names, and options shared by several programs. For programs that use
/// CLI11.
#pragma once

#include <formats/text.hpp>

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "help_format.hpp"
#include "name_list.hpp"

namespace cohort::registry {

/// The error for a text that is not a number in [least, most]; else empty.
inline std::string objection(const std::string& text, double least, double most) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && v >= least && v <= most) return {};  // Not so for nan.
  return fmt::format("got {}, expected a number from {} to {}", text, least, most);
}

/// The same check for CLI11; its own Range accepts nan.
inline CLI::Validator within(double least, double most) {
  return {[=](const std::string& text) { return objection(text, least, most); },
          fmt::format("{} to {}", least, most)};
}

/// Accepts one of these names.
inline CLI::Validator one_of(const std::vector<std::string>& names) {
  const std::string all = joined(names, " or ");
  return {[=](const std::string& text) {
            return std::ranges::count(names, text) > 0
                       ? std::string{}
                       : fmt::format("got {}, expected {}", formats::quote_short(text), all);
          },
          '{' + all + '}'};
}

/// Settings of the policy adaptive: --tune, --objective, --fairness, --window, --quantile.
template <class PolicyOptions>
void add_tuning_options(CLI::App& app, PolicyOptions& o) {
  heading(app, "Policy adaptive");
  const auto option = [&](const char* name, auto& into, const char* type, const char* what) {
    app.add_option(name, into, what)->type_name(type);
  };
  option("--tune", o.tune, "on|off",
         "replay recent traffic with other settings and adopt the best (default on)");
  option("--objective", o.objective, "latency|devices",
         "goal among settings that lose equally few requests: lowest latency or fewest devices "
         "(default latency)");
  option("--fairness", o.fairness, "X",
         "weight of the worst model's share of bad requests against the share of all requests, "
         "0 to 100 (default 0.2)");
  option("--window", o.window, "W",
         "initial window, from early to late: eager, brief, patient, reserved, frontrun or "
         "deferred (default eager; with --objective devices or --tune off reserved)");
  option("--quantile", o.quantile, "Q",
         "initial quantile of learned latencies, 0.5 to 0.999 (default 0.9)");
}

/// Options of both servers for connections and request memory.
template <class Http, class Size>
void add_http_options(CLI::App& app, Http& o, Size& request_memory_mib) {
  heading(app, "Connections");
  app.add_option("--host", o.host, "IP address to listen on, or localhost")->type_name("IP");
  app.add_option("--port", o.port, "port to listen on; 0 takes any free port")
      ->type_name("PORT")
      ->check(within(0, 65535));
  app.add_option("--max-connections", o.max_connections, "largest number of open connections")
      ->type_name("N")
      ->check(within(1, 1 << 16));
  app.add_option("--body-limit", o.body_limit, "largest body of a request, in bytes")
      ->type_name("N")
      ->check(within(1024, 1 << 30));
  app.add_option("--request-memory-mib", request_memory_mib,
                 "memory for all requests and answers together, in MiB; 0 takes a quarter of the "
                 "memory that this process may use")
      ->type_name("MIB")
      ->check(within(0, 1 << 24));
  const auto seconds = [&app](const char* name, double& into, double least, const char* what) {
    app.add_option(name, into, what)->type_name("S")->check(within(least, 86400.0));
  };
  seconds("--header-timeout-s", o.timeouts.header_s, 0.1,
          "time for a client to send the header of a request, in seconds");
  seconds("--idle-timeout-s", o.timeouts.idle_s, 1,
          "time that a connection is kept without a request, in seconds; clients are told");
  seconds("--read-timeout-s", o.timeouts.read_s, 0.1,
          "time for a client to send more of a body, in seconds");
  seconds("--write-timeout-s", o.timeouts.write_s, 0.1,
          "time for a client to take more of an answer, in seconds");
  app.add_option("--min-rate-kib", o.timeouts.min_rate_kib,
                 "lowest average rate of a body or an answer, in KiB per second, beyond the time "
                 "for more of it; 0 sets none")
      ->type_name("KIB")
      ->check(within(0, 1 << 20));
}

/// Refuses an empty COHORT_API_KEY, which CLI11 treats as unset although the user meant a key.
/// @param app Must have --api-key.
inline void refuse_empty_key(CLI::App& app) {
  app.parse_complete_callback([&app] {
    const char* const key = std::getenv("COHORT_API_KEY");
    if (key == nullptr || *key != '\0' || app.count("--api-key") > 0) return;
    throw CLI::ValidationError{"COHORT_API_KEY",
                               "got an empty key, expected a key, or no such variable"};
  });
}

/// Options of both servers for the keys of clients.
inline void add_key_options(CLI::App& app, std::vector<std::string>& keys, std::string& file) {
  heading(app, "Access");
  app.add_option("--api-key", keys,
                 "key that clients may use; repeatable (default: $COHORT_API_KEY, else no key)")
      ->type_name("KEY")
      ->envname("COHORT_API_KEY");
  refuse_empty_key(app);
  app.add_option("--api-key-file", file,
                 "file of more keys, one a line, lines of # left out; SIGHUP reads it again "
                 "(default: none)")
      ->type_name("FILE");
}

/// Options of both servers for probes and shutdown.
template <class Life>
void add_life_options(CLI::App& app, Life& o, double& lame_duck_ms) {
  heading(app, "Probes and shutdown");
  app.add_option("--management-port", o.management_port,
                 "separate port for liveness, readiness, metrics and management; 0 takes any free "
                 "port (default: none; probes and metrics share --port)")
      ->type_name("PORT")
      ->check(within(0, 65535));
  app.add_option("--drain-timeout-s", o.drain_timeout_s,
                 "time from SIGTERM to the last answer, in seconds; the process ends at most one "
                 "second later")
      ->type_name("S")
      ->check(within(0.1, 3600.0));
  app.add_option("--lame-duck-ms", lame_duck_ms,
                 "time after SIGTERM in which requests are still served while probes already read "
                 "not ready, in milliseconds (default 1000, at most a quarter of "
                 "--drain-timeout-s)")
      ->default_str("")
      ->type_name("MS")
      ->check(within(0, 3.6e6));
}

/// Options about hung and failed devices: --suspect-factor, --suspect-floor-ms, --hang-factor,
/// --failures. Must exist until `app` has parsed; `apply` then sets the chosen values.
class health_choices {
 public:
  /// @param o Its values are the defaults.
  /// @param work The work of a device: "a batch".  @param works Its plural: "batches".
  health_choices(CLI::App& app, engine::health_options& o, const std::string& work,
                 const std::string& works)
      : options_{o},
        floor_ms_{to_ms(o.floor)},
        failures_{fmt::format("{}/{}", o.failures, o.window)} {
    heading(app, "Failing devices");
    app.add_option("--suspect-factor", o.factor,
                   fmt::format("multiple of the expected time of {} after which its device is "
                               "suspect",
                               work))
        ->type_name("X")
        ->check(within(1, 1000));
    app.add_option("--suspect-floor-ms", floor_ms_, "time added to that multiple, in milliseconds")
        ->type_name("MS")
        ->check(within(0.001, 3.6e6));
    app.add_option("--hang-factor", o.patience,
                   "multiple of that sum after which the device counts as hung and gets no work")
        ->type_name("X")
        ->check(within(1, 1000));
    app.add_option("--failures", failures_,
                   fmt::format("failures, K of the last N {}, after which a device gets no work; "
                               "N up to 64",
                               works))
        ->type_name("K/N");
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
      throw config_error{fmt::format(
          "--failures: got \"{}\", expected K/N with K from 1 to N and N up to 64", failures_)};
    }
  }

 private:
  engine::health_options& options_;
  double floor_ms_;
  std::string failures_;
};

}  // namespace cohort::registry
