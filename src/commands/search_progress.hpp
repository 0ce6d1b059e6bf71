// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared by searches over runs: runs with a progress bar, and texts.
#pragma once

#include "commands.hpp"

#include <drawings/table.hpp>
#include <registry/policy.hpp>
#include "progress.hpp"

#include <cohort/sim/goodput.hpp>
#include <cohort/sim/workload.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::commands {

/// "1 % of each model's requests bad".
[[nodiscard]] inline std::string limit_text(const sim::search_options& o) {
  return fmt::format("{} % of {} requests bad", decimal(100 * o.bad_limit, 4),
                     o.judge == sim::judged::total ? "all" : "each model's");
}

/// A line about gather rules, if several were tried.
[[nodiscard]] inline std::string_view gather_note(const std::vector<policy>& policies) {
  return std::ranges::any_of(policies, &policy::tries_gathers)
             ? "(gather: the better rule of each policy that has a choice)\n"
             : "";
}

/// Runs one policy for a search. The number of rates that a search tries is not known in advance:
/// the bar assumes `expected` of them. Thread safety: sufficient for a search.
class search_runner {
 public:
  search_runner(const policy& p, const sim::search_options& o, double expected)
      : policy_{p},
        runs_{expected * o.seeds},
        bar_{fmt::format("{} ({})", p.name, p.gather_name()), "runs"} {}

  sim::run_result operator()(const sim::workload& w, const sim::run_options& options) const {
    sim::run_result run = run_policy(policy_, w, options, [](time_point) {});
    const double done = ++done_;
    bar_.update(done / std::max(runs_, done + 1), done);
    return run;
  }

 private:
  const policy& policy_;
  double runs_;
  mutable std::atomic<std::uint32_t> done_{0};
  mutable progress_bar bar_;
};

}  // namespace cohort::commands
