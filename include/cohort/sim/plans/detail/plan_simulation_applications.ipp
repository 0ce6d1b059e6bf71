// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests of applications in a simulation of plans, from part to part.
/// Part of plan_simulation.hpp, which includes it at its end.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/sim/plans/request_flow.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::sim {

inline void plan_simulation::start_application(std::uint32_t index) {
  running_application& a = applications_[index];
  const double part = a.from.rate_rps(now_) / a.from.most_rps;
  a.next = now_ + draw_gap(a.random, a.from.most_rps);
  if (uniform(a.random) >= part) return;
  ++a.counts.arrived;
  std::vector<std::pair<request_flow::part, model_id>> starting;
  a.flow.start(
      now_, [&a] { return uniform(a.random); },
      [&starting](request_flow::part p, model_id m) { starting.emplace_back(p, m); });
  if (starting.empty()) ++a.counts.completed;
  for (const auto& [p, m] : starting) {
    ++counts_[m.index()].arrived;
    arrive(m.value(), {.at_ms = now_, .application = index, .part = p});
  }
}

inline void plan_simulation::end_part(const job& j) {
  running_application& a = applications_[j.application];
  const double arrived = a.flow.arrived_ms(j.part);
  std::vector<std::pair<request_flow::part, model_id>> starting;
  const request_flow::state now = a.flow.end(
      j.part, [&starting](request_flow::part p, model_id m) { starting.emplace_back(p, m); });
  if (now == request_flow::state::ended) {
    ++(now_ <= arrived + a.slo_ms + 1e-9 ? a.counts.completed : a.counts.violated);
  }
  for (const auto& [p, m] : starting) {
    ++counts_[m.index()].arrived;
    arrive(m.value(), {.at_ms = now_, .application = j.application, .part = p});
  }
}

}  // namespace cohort::sim
