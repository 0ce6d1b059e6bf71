// SPDX-License-Identifier: Apache-2.0
// The one place that instantiates the simulation, once for each composition.
#include "policy.hpp"

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/gather.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/window.hpp>
#include <cohort/sim/goodput.hpp>

#include <utility>

namespace cohort::registry {
namespace {

template <class Gather, class Window>
sim::run_result run_window(Window window, const sim::workload& w, const sim::run_options& options,
                           const progress_function& progress) {
  const auto make = [&](const deferred::network_delays& delays) {
    return deferred::basic_scheduler<Window, Gather>{delays, window};
  };
  return sim::simulate(w, make, options, progress);
}

template <class Gather>
sim::run_result run_gather(const policy& p, const sim::workload& w, const sim::run_options& options,
                           const progress_function& progress) {
  switch (p.when) {
    case policy::window::eager:
      return run_window<Gather>(deferred::eager{}, w, options, progress);
    case policy::window::timeout:
      return run_window<Gather>(deferred::timeout{p.fraction}, w, options, progress);
    case policy::window::deferred:
    case policy::window::adaptive:
      break;
  }
  return run_window<Gather>(deferred::frontrun{}, w, options, progress);
}

}  // namespace

sim::run_result run_policy(const policy& p, const sim::workload& w, const sim::run_options& options,
                           const progress_function& progress) {
  if (p.when == policy::window::adaptive) {
    const auto make = [](const deferred::network_delays& delays) {
      return deferred::make_adaptive_scheduler(delays);
    };
    return sim::simulate(w, make, options, progress);
  }
  return p.who == policy::gather::head ? run_gather<deferred::head>(p, w, options, progress)
                                       : run_gather<deferred::drop_head>(p, w, options, progress);
}

}  // namespace cohort::registry
