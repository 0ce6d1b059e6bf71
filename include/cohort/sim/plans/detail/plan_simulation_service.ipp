// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gpu-lets in a simulation of plans: how one plan replaces another, where requests wait, and which
/// batch runs next. Part of plan_simulation.hpp, which includes it at its end.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::sim {

inline void plan_simulation::install(const packing::plan& p) {
  std::vector<server> before = std::move(servers_);
  servers_.clear();
  for (const packing::gpulet& g : p) {
    server s{.gpu = g.gpu, .size = g.size};
    for (const packing::placed_model& m : g.models) {
      const auto model = m.model.value();
      place at{.model = model, .batch = m.batch, .rate_rps = m.rate_rps};
      for (std::uint32_t b = 1; b <= grid_.max_batch(model); ++b) {
        double f = 1;
        if (interference_) {
          const packing::device_usage self =
              packing::usage_of(grid_.profile(model), b, g.size.percent());
          for (const packing::gpulet& n : p) {
            if (&n == &g || n.gpu != g.gpu) continue;
            double worst = 1;
            for (const packing::placed_model& o : n.models) {
              const packing::model_profile& other = grid_.profile(o.model.index());
              worst = std::max(
                  worst, packing::factor_between(
                             *interference_, grid_.profile(model), self, other, o.model.index(),
                             packing::usage_of(other, o.batch, n.size.percent())));
            }
            f += worst - 1;
          }
        }
        at.latency_ms.push_back(f * grid_.measured(model)(b, g.size.percent()));
      }
      s.places.push_back(std::move(at));
    }
    const auto same = std::ranges::find_if(before, [&g](const server& old) {
      return old.gpu == g.gpu && old.size == g.size && !old.places.empty();
    });
    if (same != before.end()) {
      s.running = same->running;
      s.busy_until = same->busy_until;
      for (place& old : same->places) {
        const auto at = std::ranges::find(s.places, old.model, &place::model);
        if (at != s.places.end()) at->arrivals.swap(old.arrivals);
      }
      same->gpu = device_id{static_cast<std::uint32_t>(-1)};  // Taken.
    }
    servers_.push_back(std::move(s));
  }
  std::vector<std::pair<job, std::uint32_t>> homeless;
  for (const server& old : before) {
    for (const place& at : old.places) {
      for (const job& j : at.arrivals) homeless.emplace_back(j, at.model);
    }
  }
  std::ranges::sort(homeless, {}, [](const auto& x) { return std::pair{x.first.at_ms, x.second}; });
  for (const auto& [j, model] : homeless) arrive(model, j);
}

/// Sends a request to the place with the fewest waiting requests for its rate.
inline void plan_simulation::arrive(std::uint32_t model, const job& j) {
  place* best = nullptr;
  server* on = nullptr;
  double least = none;
  for (server& s : servers_) {
    for (place& p : s.places) {
      if (p.model != model) continue;
      const double waiting =
          static_cast<double>(p.arrivals.size() + 1) / std::max(p.rate_rps, 1e-9);
      if (waiting >= least) continue;
      least = waiting;
      best = &p;
      on = &s;
    }
  }
  if (best == nullptr) {
    lose(model, j);
    return;
  }
  best->arrivals.push_back(j);
  dispatch(*on);
}

/// Latest start of a place's waiting requests, up to its batch, for the oldest to be in time.
inline double plan_simulation::latest_start(const place& p) const {
  if (p.arrivals.empty()) return none;
  const auto b = std::min<std::size_t>(p.arrivals.size(), p.batch);
  return p.arrivals.front().at_ms + grid_.slo_ms(p.model) - p.latency_ms[b - 1];
}

inline void plan_simulation::dispatch(server& s) {
  if (s.running && s.busy_until > now_) return;
  s.running = false;
  for (place& p : s.places) {
    const double least = grid_.slo_ms(p.model) - p.latency_ms[0];
    while (!p.arrivals.empty() && p.arrivals.front().at_ms + least < now_ - 1e-9) {
      lose(p.model, p.arrivals.front());
      p.arrivals.pop_front();
    }
  }
  place* first = nullptr;
  for (place& p : s.places) {
    if (!p.arrivals.empty() && (first == nullptr || latest_start(p) < latest_start(*first))) {
      first = &p;
    }
  }
  if (first == nullptr) return;
  double others = none;
  for (const place& p : s.places) {
    if (&p != first) others = std::min(others, latest_start(p));
  }
  // The largest batch that is in time, and within the plan or harmless. The oldest requests are
  // dropped if they would keep the batch below the planned one: otherwise small batches would serve
  // a backlog of nearly late requests, which would never shrink.
  std::size_t b = 0;
  for (;;) {
    const double in_time = first->arrivals.front().at_ms + grid_.slo_ms(first->model) + 1e-9;
    const auto whole = std::min<std::size_t>(first->arrivals.size(), first->batch);
    b = std::min(first->arrivals.size(), first->latency_ms.size());
    while (b > 1) {
      const double end = now_ + first->latency_ms[b - 1];
      if (end <= in_time && (b <= first->batch || end <= others)) break;
      --b;
    }
    if (b >= whole) break;
    lose(first->model, first->arrivals.front());
    first->arrivals.pop_front();
  }
  s.running = true;
  s.busy_until = now_ + first->latency_ms[b - 1];
  plan_counts& c = counts_[first->model];
  for (std::size_t i = 0; i < b; ++i) {
    const bool good =
        s.busy_until <= first->arrivals.front().at_ms + grid_.slo_ms(first->model) + 1e-9;
    ++(good ? c.completed : c.violated);
    const job& j = first->arrivals.front();
    if (j.application != no_application) ends_.push({.at_ms = s.busy_until, .what = j});
    first->arrivals.pop_front();
  }
}

}  // namespace cohort::sim
