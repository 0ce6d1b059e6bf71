// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batching policies by name, and one run under any of them. Their table is in policies.hpp.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/tuner.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "name_list.hpp"

namespace cohort::registry {

/// The values of --policy.
[[nodiscard]] const name_list& policy_names();
/// The values of --gather.
[[nodiscard]] const name_list& gather_names();
/// Which policy has which of them: "deferred: drop-head; eager: head; ...".
[[nodiscard]] std::string default_gathers();

/// A policy as the user chose it.
struct policy : choice {
  std::size_t gather = 0;                            ///< Row of the gather rules.
  std::optional<deferred::tuning_options> tuning{};  ///< If it tunes itself.

  [[nodiscard]] std::string_view gather_name() const noexcept {
    return gather_names().all()[gather].name;
  }
};

/// What is said of policies besides their names, as the user wrote it.
struct policy_options {
  std::optional<std::string> gather{};
  std::optional<std::string> tune{};       ///< "on" or "off".
  std::optional<std::string> objective{};  ///< "latency" or "devices".
  std::optional<std::string> fairness{};
};

/// The policies of a comma-separated list.
/// @throws input_error If one is unknown or given twice, or an option is not one or of none of
/// them.
[[nodiscard]] std::vector<policy> parse_policies(std::string_view list, const policy_options& o);

/// Hears the simulated time now and then. Called on the thread that runs.
using progress_function = std::function<void(time_point)>;

/// One run in virtual time. Deterministic; callable from several threads at once.
[[nodiscard]] sim::run_result run_policy(const policy& p, const sim::workload& w,
                                         const sim::run_options& options,
                                         const progress_function& progress);

}  // namespace cohort::registry
