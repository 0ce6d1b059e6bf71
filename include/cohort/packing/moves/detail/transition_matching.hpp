// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses which devices and partitions stay from one plan to the next.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/detail/transition_state.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

/// How similar two gpu-lets are: common models count most, then all the rest.
[[nodiscard]] inline std::size_t likeness(const std::vector<placed_model>& a,
                                          const std::vector<placed_model>& b) noexcept {
  std::size_t n = 0;
  for (const placed_model& x : a) {
    n += std::ranges::find(b, x.model, &placed_model::model) != b.end();
  }
  return 2 * n + (same_service(a, b) ? 1 : 0);
}

inline transition_maker::transition_maker(const latency_grid& grid,
                                          const std::vector<live_gpulet>& current, const plan& next,
                                          const transition_limits& limits)
    : grid_{grid}, next_{next}, limits_{limits}, pending_(next.size(), true) {
  expects(limits.gpus >= 1, "plan_transition: gpus must be at least 1");
  for (const device_id gpu : limits.set_aside) {
    expects(gpu.index() < limits.gpus, "plan_transition: an unknown gpu is set aside");
  }
  std::vector<live_gpulet> after;
  for (const gpulet& g : next) after.push_back({.id = {}, .what = g});
  const std::vector<live_gpulet>* const both[] = {&current, &after};
  for (const std::vector<live_gpulet>* all : both) {
    std::vector<std::uint32_t> size(limits.gpus, 0);
    std::vector<std::uint32_t> count(limits.gpus, 0);
    std::vector<double> memory(limits.gpus, 0.0);
    for (const live_gpulet& g : *all) {
      expects(g.what.gpu.index() < limits.gpus, "plan_transition: a gpu-let is on an unknown gpu");
      size[g.what.gpu.index()] += g.what.size.percent();
      ++count[g.what.gpu.index()];
      for (const placed_model& m : g.what.models) {
        expects(m.model.index() < grid.models(), "plan_transition: a gpu-let has an unknown model");
        memory[g.what.gpu.index()] += grid.profile(m.model.index()).memory_mb;
      }
      for (const model_id m : g.idle) {
        expects(m.index() < grid.models(), "plan_transition: a gpu-let has an unknown model");
        memory[g.what.gpu.index()] += grid.profile(m.index()).memory_mb;
      }
    }
    for (std::size_t i = 0; i < size.size(); ++i) {
      expects(size[i] <= 100 && count[i] <= limits.max_gpulets_per_gpu &&
                  memory[i] <= limits.memory_mb * (1 + 1e-9),
              "plan_transition: a plan exceeds the limits of a gpu");
    }
  }
  for (const live_gpulet& g : current) {
    part p{.id = g.id,
           .gpu = g.what.gpu,
           .size = g.what.size,
           .duty_ms = g.what.duty_ms,
           .serving = g.what.models,
           .loaded = g.idle,
           .kept = limits.is_set_aside(g.what.gpu) ? &g : nullptr,
           .is_out = g.is_out};
    for (const placed_model& m : g.what.models) p.loaded.push_back(m.model);
    next_id_ = std::max(next_id_, g.id.value() + 1);
    parts_.push_back(std::move(p));
  }
}

/// Renames the devices of the next plan so that most stays. Those without a device are omitted.
inline void transition_maker::match_devices() {
  struct pair {
    std::size_t kept;
    std::size_t destroyed;
    std::uint32_t from;
    std::uint32_t to;
  };
  std::vector<std::vector<const gpulet*>> next(limits_.gpus);
  std::vector<std::vector<const part*>> now(limits_.gpus);
  for (const gpulet& g : next_) next[g.gpu.index()].push_back(&g);
  for (const part& p : parts_) now[p.gpu.index()].push_back(&p);
  std::vector<pair> pairs;
  for (std::uint32_t from = 0; from < limits_.gpus; ++from) {
    if (next[from].empty()) continue;
    for (std::uint32_t to = 0; to < limits_.gpus; ++to) {
      if (limits_.is_set_aside(device_id{to})) continue;
      std::size_t kept = 0;
      for (const gpulet* g : next[from]) {
        std::size_t best = 0;
        for (const part* p : now[to]) {
          if (p->size == g->size) best = std::max(best, 1 + likeness(p->serving, g->models));
        }
        kept += best;
      }
      const std::size_t destroyed = now[to].size() - std::min(now[to].size(), next[from].size());
      if (kept > 0) pairs.push_back({kept, destroyed, from, to});
    }
  }
  sort_stably(pairs, [](const pair& a, const pair& b) {
    if (a.kept != b.kept) return a.kept > b.kept;
    if (a.destroyed != b.destroyed) return a.destroyed < b.destroyed;
    return (a.from == a.to) > (b.from == b.to);  // Of equals, a device that keeps its number.
  });
  constexpr auto none = static_cast<std::uint32_t>(-1);
  std::vector<std::uint32_t> name(limits_.gpus, none);
  std::vector<bool> taken(limits_.gpus, false);
  for (const device_id gpu : limits_.set_aside) taken[gpu.index()] = true;
  for (const pair& p : pairs) {
    if (name[p.from] != none || taken[p.to]) continue;
    name[p.from] = p.to;
    taken[p.to] = true;
  }
  // If some may be omitted, devices keep free numbers first: models stay where planned.
  for (std::uint32_t d = 0; d < limits_.gpus && !limits_.set_aside.empty(); ++d) {
    if (name[d] != none || next[d].empty() || taken[d] || !now[d].empty()) continue;
    name[d] = d;
    taken[d] = true;
  }
  for (const bool empty : {true, false}) {  // The rest: free devices first.
    std::uint32_t to = 0;
    for (std::uint32_t from = 0; from < limits_.gpus; ++from) {
      if (name[from] != none || next[from].empty()) continue;
      while (to < limits_.gpus && (taken[to] || (empty && !now[to].empty()))) ++to;
      if (to == limits_.gpus) break;
      name[from] = to;
      taken[to] = true;
    }
  }
  std::erase_if(next_, [&](const gpulet& g) {
    const bool has_none = name[g.gpu.index()] == none;
    if (has_none) out_.left_out.push_back(g);
    return has_none;
  });
  pending_.assign(next_.size(), true);
  for (gpulet& g : next_) g.gpu = device_id{name[g.gpu.index()]};
}

/// Keeps partitions with the same size on the same device, those with most models in common first.
inline void transition_maker::match_partitions() {
  for (std::size_t alike = 64; alike-- > 0;) {
    for (std::size_t t = 0; t < next_.size(); ++t) {
      if (!pending_[t]) continue;
      for (part& p : parts_) {
        if (p.kept || p.target || p.gpu != next_[t].gpu || p.size != next_[t].size) continue;
        if (std::min<std::size_t>(63, likeness(p.serving, next_[t].models)) != alike) continue;
        p.target = t;
        pending_[t] = false;
        break;
      }
    }
  }
}

}  // namespace cohort::packing::detail
