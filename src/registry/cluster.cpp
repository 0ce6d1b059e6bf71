// SPDX-License-Identifier: Apache-2.0
// The table of routes, and the one place that instantiates their simulation.
#include <cohort/sim/cluster/cluster_simulation.hpp>
#include <cohort/sim/cluster/routers.hpp>
#include <cohort/sim/cluster/text_cluster.hpp>

#include <concepts>
#include <cstdint>
#include <random>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cluster.hpp"
#include "name_table.hpp"
#include "policies.hpp"

namespace cohort::registry {
namespace {

/// Marks what is no choice of an endpoint.
struct by_picker {};
struct by_engine {};
struct by_queue {};

/// `make(workload, seed)` chooses an endpoint.
constexpr name_table routes{
    row{"picker", "hold requests and answer them in batches: cohort's picker",
        [](const sim::workload&, std::uint64_t) { return by_picker{}; }},
    row{"engine", "one machine's engine with all devices, for comparison",
        [](const sim::workload&, std::uint64_t) { return by_engine{}; }},
    row{"central", "one queue, and the endpoints' policy over it",
        [](const sim::workload&, std::uint64_t) { return by_queue{}; }},
    row{"least-request", "endpoint with the fewest requests",
        [](const sim::workload& w, std::uint64_t seed) { return sim::least_request{w, seed}; }},
    row{"two-choices", "endpoint with fewer requests of two drawn at random",
        [](const sim::workload& w, std::uint64_t seed) { return sim::two_choices{w, seed}; }},
    row{"round-robin", "endpoints in turn, for each model",
        [](const sim::workload& w, std::uint64_t seed) { return sim::round_robin{w, seed}; }},
    row{"random", "any endpoint",
        [](const sim::workload& w, std::uint64_t seed) { return sim::random_endpoint{w, seed}; }},
};

/// `make(workload, seed)` is the router.
constexpr name_table prompt_routes{
    row{"picker", "hold prompts and pick by predicted times: cohort's picker",
        [](const sim::text_workload& w, std::uint64_t) { return sim::text_picked{w}; }},
    row{"prefix-scores", "scores for short queues, free memory and known prefixes, as llm-d",
        [](const sim::text_workload& w, std::uint64_t) {
          return sim::text_sent{sim::text_scorers{w}};
        }},
    row{"least-request", "endpoint with the fewest requests",
        [](const sim::text_workload&, std::uint64_t) {
          return sim::text_sent{sim::text_least_request{}};
        }},
    row{"round-robin", "endpoints in turn",
        [](const sim::text_workload&, std::uint64_t) {
          return sim::text_sent{sim::text_round_robin{}};
        }},
    row{"random", "any endpoint",
        [](const sim::text_workload&, std::uint64_t seed) {
          return sim::text_sent{sim::text_random{std::mt19937_64{seed}}};
        }},
};

}  // namespace

const name_list& prompt_route_names() {
  static const name_list names = prompt_routes.list();
  return names;
}

sim::text_result run_prompts(const choice& route, const sim::text_workload& w, std::uint64_t seed) {
  return prompt_routes.visit(route.row,
                             [&](const auto& r) { return sim::simulate_text(w, r.make(w, seed)); });
}

const name_list& route_names() {
  static const name_list names = routes.list();
  return names;
}

bool is_batched_by_name(const choice& route) {
  return routes.visit(route.row, [](const auto& r) {
    using made = decltype(r.make(std::declval<const sim::workload&>(), std::uint64_t{}));
    return std::same_as<made, by_picker> || std::same_as<made, by_engine>;
  });
}

sim::run_result run_route(const route_choice& c, const sim::workload& w,
                          const sim::run_options& options) {
  const auto quiet = [](time_point) {};
  return routes.visit(c.route.row, [&](const auto& r) {
    auto way = r.make(w, options.seed);
    using way_type = decltype(way);
    if constexpr (std::same_as<way_type, by_engine> || std::same_as<way_type, by_queue>) {
      return run_policy(c.batching, w, options, quiet);
    } else {
      return with_composition(c.batching, [&](const auto& composition) {
        const auto scheduler = [&](const deferred::network_delays& d) {
          return composition.template scheduler<deferred::inline_trials>(d);
        };
        using scheduler_type = decltype(scheduler({}));
        if constexpr (std::same_as<way_type, by_picker>) {
          const auto make = [&](const sim::workload& load) {
            return sim::picked<scheduler_type>{load, scheduler(load.told_delays())};
          };
          return sim::simulate_cluster(w, make, options, quiet);
        } else {
          const auto make = [&](const sim::workload& load) {
            return sim::routed<way_type, scheduler_type>{load, way, scheduler};
          };
          return sim::simulate_cluster(w, make, options, quiet);
        }
      });
    }
  });
}

}  // namespace cohort::registry
