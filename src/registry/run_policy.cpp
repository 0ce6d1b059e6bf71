// SPDX-License-Identifier: Apache-2.0
// The one place that instantiates the simulation of our policies, once for each policy and gather
// rule.
#include <cohort/sim/goodput.hpp>

#include "policies.hpp"
#include "policy.hpp"
#include "rivals.hpp"

namespace cohort::registry {

sim::run_result run_policy(const policy& p, const sim::workload& w, const sim::run_options& options,
                           const progress_function& progress) {
  if (p.is_rival) return run_rival(p, w, options, progress);
  return policies.visit(p.row, [&](const auto& row) {
    const auto run = [&](const auto& gather) {
      const auto make = [&](const deferred::network_delays& delays) {
        return row.make(p, gather).template scheduler<deferred::inline_trials>(delays);
      };
      return sim::simulate(w, make, options, progress);
    };
    if constexpr (decltype(row.gather)::is_fixed) {
      return run(row.gather.rule);
    } else {
      return gathers.visit(p.gather, [&](const auto& rule) { return run(rule.make); });
    }
  });
}

}  // namespace cohort::registry
