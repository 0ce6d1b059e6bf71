// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies that the command knows, by name, and one run under any of them.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::registry {

/// A policy as the user chose it.
struct policy {
  enum class window : std::uint8_t { deferred, adaptive, eager, timeout };
  enum class gather : std::uint8_t { head, drop_head };

  std::string name;  ///< As given.
  window when = window::deferred;
  double fraction = 0;  ///< Of the SLO, for `timeout`.
  gather who = gather::drop_head;

  [[nodiscard]] std::string_view gather_name() const noexcept {
    return who == gather::head ? "head" : "drop-head";
  }
};

/// The policies of a comma-separated list. @param gather Value of --gather, if given.
/// @throws input_error If one is unknown or given twice, or does not take a gather rule.
[[nodiscard]] std::vector<policy> parse_policies(std::string_view list,
                                                 const std::optional<std::string>& gather);

/// Hears the simulated time now and then. Called on the thread that runs.
using progress_function = std::function<void(time_point)>;

/// One run in virtual time. Deterministic; callable from several threads at once.
[[nodiscard]] sim::run_result run_policy(const policy& p, const sim::workload& w,
                                         const sim::run_options& options,
                                         const progress_function& progress);

}  // namespace cohort::registry
