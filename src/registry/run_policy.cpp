// SPDX-License-Identifier: Apache-2.0
// The one place that instantiates the simulation of our policies, once for each policy and gather
// rule; run_pooled_policy.cpp does so over pools.
#include <cohort/sim/autoscaled.hpp>
#include <cohort/sim/goodput.hpp>

#include "policies.hpp"
#include "policy.hpp"
#include "rivals.hpp"

namespace cohort::registry {

namespace {

/// Calls `use(make)` for a policy; `make(network_delays)` returns its scheduler.
template <class Use>
auto with_simulated(const policy& p, Use use) {
  return with_composition(p, [&](const auto& c) {
    return use([&](const deferred::network_delays& delays) {
      return c.template scheduler<deferred::inline_trials>(delays);
    });
  });
}

}  // namespace

sim::run_result run_policy(const policy& p, const sim::workload& w, const sim::run_options& options,
                           const progress_function& progress) {
  if (p.is_rival) return run_rival(p, w, options, progress);
  if (!w.pools.empty()) return run_pooled_policy(p, w, options, progress);
  return with_simulated(
      p, [&](const auto& make) { return sim::simulate(w, make, options, progress); });
}

sim::scaling_result run_policy_autoscaled(const policy& p, const sim::workload& w,
                                          const sim::run_options& options,
                                          const sim::scaling_options& scaling,
                                          const progress_function& progress) {
  return with_simulated(p, [&](const auto& make) {
    return sim::run_autoscaled(w, make, options, scaling, progress);
  });
}

}  // namespace cohort::registry
