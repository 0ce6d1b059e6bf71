// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of batching policies, which the command runs in virtual time and the inference server
/// over its devices. Included where schedulers are made; policy.hpp is for the others.
#pragma once

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/gather.hpp>
#include <cohort/deferred/learning.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/priority.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/target.hpp>
#include <cohort/deferred/window.hpp>

#include "name_table.hpp"
#include "policy.hpp"

namespace cohort::registry {

/// The values of --gather.
inline constexpr name_table gathers{
    row{"head", "keeps the oldest request while it can be served at all", deferred::head{}},
    row{"drop-head", "gives up the oldest requests that would hold the batch small",
        deferred::drop_head{}}};

/// A gather rule that --gather may replace.
template <class Gather>
struct usually {
  static constexpr bool is_fixed = false;
  Gather rule{};
};
/// One that it may not.
template <class Gather>
struct always {
  static constexpr bool is_fixed = true;
  Gather rule{};
};

/// The policies of a scheduler, and so of one over pools.
template <class Window, class Gather, class Target = deferred::staggered_target,
          class Priority = deferred::earliest_latest>
struct composition {
  Window window{};
  Gather gather{};
  Target target{};
  Priority priority{};
  deferred::learning learns{};

  [[nodiscard]] auto scheduler(const deferred::network_delays& d) const {
    deferred::basic_scheduler<Window, Gather, Target, Priority> s{d, window, gather, target,
                                                                  priority};
    s.learn(learns, distant_past);
    return s;
  }
  [[nodiscard]] auto pooled_scheduler(const deferred::network_delays& d) const {
    deferred::basic_pooled_scheduler<Window, Gather, Target, Priority> s{d, window, gather, target,
                                                                         priority};
    s.learn(learns, distant_past);
    return s;
  }
};

/// `make(parameter, gather rule)` is the composition.
template <class Gather = nothing, class Make = nothing>
struct policy_row {
  std::string_view name;
  std::string_view help;
  Gather gather{};
  Make make{};
  name_parameter parameter{};
};

/// A window policy under any gather rule.
template <class Window, class Gather>
constexpr auto compose(Window window, Gather) {
  return composition<Window, Gather>{.window = window};
}

inline constexpr name_table policies{
    policy_row{"deferred", "when one request more could no longer join",
               usually<deferred::drop_head>{},
               [](double, auto gather) { return compose(deferred::frontrun{}, gather); }},
    policy_row{"adaptive",
               "as deferred, but to a target that follows load, arrivals and neighbours",
               always<deferred::drop_head>{},
               [](double, deferred::drop_head) {
                 return composition<deferred::adaptive_window, deferred::drop_head,
                                    deferred::adaptive_target, deferred::adaptive_priority>{
                     .learns = {.is_on = true}};
               }},
    policy_row{"eager", "as soon as a device is free", usually<deferred::head>{},
               [](double, auto gather) { return compose(deferred::eager{}, gather); }},
    policy_row{"timeout", "when its first request has waited the part F of its SLO",
               usually<deferred::head>{},
               [](double part, auto gather) { return compose(deferred::timeout{part}, gather); },
               name_parameter{"F", {.low = 0, .high = 1}}},
};

/// `use(composition)` for a policy with the gather rule of its row. Every policy costs the caller
/// an instantiation of `use`.
template <class Use>
decltype(auto) with_policy(const choice& policy, Use use) {
  return policies.visit(policy.row, [&](const auto& row) -> decltype(auto) {
    return use(row.make(policy.parameter, row.gather.rule));
  });
}
/// `use(scheduler)` for it.
template <class Use>
decltype(auto) with_scheduler(const choice& policy, const deferred::network_delays& delays,
                              Use use) {
  return with_policy(policy,
                     [&](const auto& c) -> decltype(auto) { return use(c.scheduler(delays)); });
}

}  // namespace cohort::registry
