// SPDX-License-Identifier: Apache-2.0
// The table of rivals, and the one place that instantiates their simulation.
#include <cohort/core/time.hpp>
#include <cohort/sim/rivals/clockwork.hpp>
#include <cohort/sim/rivals/nexus.hpp>
#include <cohort/sim/rivals/rival_simulation.hpp>
#include <cohort/sim/rivals/shepherd.hpp>

#include "name_table.hpp"
#include "rivals.hpp"

namespace cohort::registry {
namespace {

constexpr double at_arrival_ms = 3.6e6;

/// `make(policy, facts)` returns the rival.
constexpr name_table rivals{
    row{"clockwork", "Clockwork: commit MS ms before a device is idle (default at arrival)",
        [](const policy& p, const sim::rival_facts& f) {
          return sim::clockwork{f, from_ms(p.parameter)};
        },
        name_parameter{"MS", {.low = 0, .high = at_arrival_ms}, at_arrival_ms}},
    row{"shepherd", "Shepherd: largest batch first; it stops a batch a third as large",
        [](const policy&, const sim::rival_facts& f) { return sim::shepherd{f}; }},
    row{"nexus", "Nexus: pack models on devices every 10 s; each serves its own in turn",
        [](const policy&, const sim::rival_facts& f) { return sim::nexus{f}; }},
};

}  // namespace

const name_list& rival_names() {
  static const name_list names = rivals.list();
  return names;
}

sim::run_result run_rival(const policy& p, const sim::workload& w, const sim::run_options& options,
                          const progress_function& progress) {
  return rivals.visit(p.row, [&](const auto& row) {
    const auto make = [&](const sim::rival_facts& f) { return row.make(p, f); };
    return sim::simulate_rival(w, make, options, progress);
  });
}

}  // namespace cohort::registry
