// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs for a search, with a progress bar over them.
#pragma once

#include "commands.hpp"

#include <registry/policy.hpp>
#include "progress.hpp"

#include <cohort/sim/goodput.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cohort::commands {

/// Runs one policy for a search. How many rates a search tries is not known before: the bar assumes
/// `expected` of them. Thread safety: as a search needs it.
class search_runner {
 public:
  search_runner(const policy& p, const sim::search_options& o, double expected)
      : policy_{p}, runs_{expected * o.seeds}, bar_{p.name, "runs"} {}

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
