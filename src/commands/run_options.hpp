// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options that several subcommands share.
#pragma once

#include <formats/pools_file.hpp>
#include <formats/reality_file.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"

#include <cohort/sim/goodput.hpp>
#include <cohort/sim/workload.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::commands {

/// Requests per second, above 0. A simulation draws gaps in nanoseconds.
inline constexpr number_range rates{.low = 0, .high = 1e9, .above_low = true};

[[nodiscard]] inline std::uint64_t parse_seed(const std::string& seed) {
  return parse_integer("--seed", seed, integer_range{});
}

/// A workload, and the repairs of its input.
struct checked_workload {
  sim::workload load;
  warnings repairs{};
};

/// Like `read_workload`. Prints repairs unless they are part of the answer.
/// @param json Whether the answer has `warnings`.
[[nodiscard]] inline checked_workload read_checked_workload(const std::string& file, bool json) {
  checked_workload c;
  c.load = read_workload(file, &c.repairs);
  if (!json) print_warnings("cohort", c.repairs);
  return c;
}

/// The policies requested by the user; without any, the workload's.
/// @param parse `parse_simulated_policies` or `parse_searched_policies`.
[[nodiscard]] inline std::vector<registry::policy> chosen_policies(
    decltype(registry::parse_searched_policies)& parse, const text_option& list,
    const registry::policy_options& how, const std::string& file, const sim::workload& w) {
  if (list) return parse(*list, how);
  const sim::policy_values& p = w.policy;
  if (p.name.empty()) {
    const bool may_be_rivals = &parse != &registry::parse_policies;
    const registry::name_list& names =
        may_be_rivals ? registry::simulated_policy_names() : registry::policy_names();
    throw input_error{"--policy: missing, and the workload has none: expected " + names.names()};
  }
  const auto said = [](const text_option& here, const std::string& there) {
    return here || there.empty() ? here : text_option{there};
  };
  try {
    return parse(p.name, {.gather = said(how.gather, p.gather),
                          .tune = said(how.tune, p.tune),
                          .objective = said(how.objective, p.objective),
                          .fairness = said(how.fairness, p.fairness),
                          .window = said(how.window, p.window),
                          .quantile = said(how.quantile, p.quantile)});
  } catch (const input_error& e) {
    throw input_error{fmt::format("{}: $.policy: {}", input_name(file), e.what())};
  }
}

/// The rate requested by the user; without one, the workload's.
[[nodiscard]] inline double chosen_rate(const text_option& rate, const sim::workload& w) {
  if (!rate && w.rate <= 0) throw input_error{"--rate: missing: expected " + rates.describe()};
  const double chosen = rate ? parse_number("--rate", *rate, rates) : w.rate;
  check_run_size(w, chosen, "--rate");
  return chosen;
}

/// Applies --devices. Faults of removed devices are dropped.
inline void apply_devices(const text_option& devices, sim::workload& w,
                          std::string_view option = "--devices") {
  if (!devices) return;
  if (!w.pools.empty() || !w.classes.empty()) {
    fail(option, *devices,
         fmt::format("none: {} of the workload set the number",
                     w.pools.empty() ? "device_classes" : "pools"));
  }
  w.devices =
      static_cast<std::uint32_t>(parse_integer(option, *devices, {.low = 1, .high = 1'000'000}));
  std::erase_if(w.reality.faults, [&](const fault& f) { return f.device.value() >= w.devices; });
}

/// If a rival is requested, refuses features that it has no rule for: devices that fail or differ,
/// and pools.
inline void refuse_for_rivals(const std::vector<registry::policy>& policies,
                              const sim::workload& w) {
  const std::string_view what = !w.reality.faults.empty() ? "reality.faults"
                                : !w.pools.empty()        ? "pools"
                                : !w.classes.empty()      ? "device_classes"
                                                          : "";
  if (what.empty()) return;
  for (const registry::policy& p : policies) {
    if (p.is_rival) {
      fail("--policy", quote_short(p.name), fmt::format("a policy of cohort with {}", what));
    }
  }
}
/// Refuses unequal devices if their number is searched for.
/// @param what The subcommand.
inline void refuse_pools(const std::string& file, const sim::workload& w, std::string_view what) {
  if (w.pools.empty() && w.classes.empty()) return;
  throw input_error{
      fmt::format("{}: $.{}: got some, expected none: {} takes one pool of equal devices",
                  input_name(file), w.pools.empty() ? "device_classes" : "pools", what)};
}

/// Applies --subclusters.
inline void apply_subclusters(const text_option& file, const std::string& workload_file,
                              sim::workload& w) {
  if (!file) return;
  if (*file == "-" && workload_file == "-") {
    fail("--subclusters", "-", "a file, since standard input holds the workload");
  }
  read_subclusters(*file, w);
}

/// Applies --duration-s.
inline void apply_duration(const text_option& duration_s, sim::workload& w) {
  if (!duration_s) return;
  const double s = parse_number("--duration-s", *duration_s, {.low = 0.001, .high = 1e6});
  w.measured = from_seconds(s);
}

/// Applies --reality.
inline void apply_reality(const text_option& file, const std::string& workload_file,
                          sim::workload& w) {
  if (!file) return;
  if (*file == "-" && workload_file == "-") {
    fail("--reality", "-", "a file, since standard input holds the workload");
  }
  reality_spec r = read_reality(*file, w.devices);
  if (w.arrivals == sim::arrival_process::trace && !r.load.empty()) {
    throw input_error{*file + ": $.load: got load steps, expected none with a trace"};
  }
  w.reality = std::move(r.machines);
  w.load = std::move(r.load);
}

/// Parses and checks the options of a search.
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

/// Refuses traces and load steps: a search needs a constant rate. @param what The subcommand.
inline void refuse_trace(const std::string& file, const sim::workload& w, std::string_view what) {
  if (!w.load.empty()) {
    throw input_error{fmt::format(
        "{}: $.reality.load: got load steps, expected none: {} searches at a constant load", file,
        what)};
  }
  if (w.arrivals != sim::arrival_process::trace) return;
  fail(fmt::format("{}: $.arrivals.process", input_name(file)), "\"trace\"",
       fmt::format("poisson, gamma or uniform: {} changes the rate", what));
}

}  // namespace cohort::commands
