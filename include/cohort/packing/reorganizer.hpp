// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the plan in service to the next one: ordered steps that leave no model unserved.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/latency_grid.hpp>
#include <cohort/packing/plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::packing {

using partition_id = strong_id<struct partition_tag>;

/// A gpu-let in service.
struct live_gpulet {
  partition_id id;
  gpulet what;
};

/// One thing to do; each waits for the one before.
struct reorganization_step {
  enum class kind : std::uint8_t {
    create,   ///< Make the partition: `gpu`, `size`.
    load,     ///< Load `model` into the partition, ready to run but without traffic.
    warm_up,  ///< Run `model` there once for itself: the first run is slow.
    serve,    ///< From now on the partition serves exactly `models`, once every `duty_ms`.
    drain,    ///< Wait until the partition has ended what it was given of `model`.
    unload,   ///< Free the memory of `model` there.
    destroy,  ///< Remove the partition, which holds no model.
  };
  kind what;
  partition_id partition;
  device_id gpu;
  device_share size;
  model_id model{};                    ///< Of load, warm_up, drain and unload.
  double duty_ms = 0;                  ///< Of serve.
  std::vector<placed_model> models{};  ///< Of serve; requests are shared out by their rates.
};

/// How to get to the next plan.
struct reorganization {
  std::vector<reorganization_step> steps;
  std::vector<live_gpulet> after;     ///< What is in service at the end.
  std::vector<model_id> interrupted;  ///< Models that are unserved for a while; see `reorganize`.
  std::size_t loads = 0;              ///< Models loaded: what a reorganization costs.
};

/// Limits that hold at every step.
struct reorganization_limits {
  std::uint32_t gpus = 1;  ///< At least 1.
  std::uint32_t max_gpulets_per_gpu = 2;
  double memory_mb = std::numeric_limits<double>::infinity();
};

namespace detail {

/// The steps while they are worked out, and the state that they lead to.
class reorganizer {
 public:
  reorganizer(const latency_grid& grid, const std::vector<live_gpulet>& current, const plan& next,
              const reorganization_limits& limits);
  reorganization run();

 private:
  struct part {
    partition_id id;
    device_id gpu;
    device_share size;
    double duty_ms = 0;
    std::vector<placed_model> serving{};
    std::vector<model_id> loaded{};
    std::optional<std::size_t> target{};  // Index of the next plan's gpu-let that it becomes.
    bool done = false;
  };
  using kind = reorganization_step::kind;

  void match_devices();
  void match_partitions();
  bool wanted(model_id m) const;
  bool served_elsewhere(model_id m, const part& by) const;
  bool has_memory(const part& p, model_id m) const;
  bool has_room(const gpulet& g) const;
  bool is_fast(const part& p, model_id m) const {
    return grid_.measured(m.index())(1, p.size.percent()) <= grid_.slo_ms(m.index());
  }
  bool realise(part& p);
  bool create_targets();
  std::vector<placed_model> burdens(const part& p) const;
  bool retire();
  bool shelter();
  bool interrupt();
  void load(part& p, model_id m);
  void serve(part& p, double duty_ms, std::vector<placed_model> models);
  void unload(part& p, model_id m);
  void emit(kind k, const part& p, model_id m = {});

  const latency_grid& grid_;
  plan next_;
  reorganization_limits limits_;
  std::vector<part> parts_;
  std::vector<bool> pending_;  // Of the next plan: has no partition yet.
  std::uint32_t next_id_ = 0;
  reorganization out_;
};

}  // namespace detail

/// Steps from what is in service to the next plan. Devices are alike: the next plan's are renamed
/// so that most partitions and models stay. At every step: sizes, counts and memory of each device
/// keep the limits, and every model of both plans is served by some partition where it is loaded
/// and warm. Where a partition must go before its successor fits, its models are first sheltered in
/// other partitions. Between the plans SLOs may be missed: a sheltered model shares what was
/// planned for others.
/// If there is no memory anywhere to shelter a model, it is interrupted, and named so.
/// @throws config_error If a plan does not keep the limits itself.
/// Complexity: O(gpus² + partitions²).
[[nodiscard]] inline reorganization reorganize(const latency_grid& grid,
                                               const std::vector<live_gpulet>& current,
                                               const plan& next,
                                               const reorganization_limits& limits) {
  return detail::reorganizer{grid, current, next, limits}.run();
}

namespace detail {

/// How much two gpu-lets have in common: models first, then all the rest.
[[nodiscard]] inline std::size_t likeness(const std::vector<placed_model>& a,
                                          const std::vector<placed_model>& b) noexcept {
  std::size_t n = 0;
  for (const placed_model& x : a) {
    n += std::ranges::find(b, x.model, &placed_model::model) != b.end();
  }
  return 2 * n + (a == b);
}

inline reorganizer::reorganizer(const latency_grid& grid, const std::vector<live_gpulet>& current,
                                const plan& next, const reorganization_limits& limits)
    : grid_{grid}, next_{next}, limits_{limits}, pending_(next.size(), true) {
  expects(limits.gpus >= 1, "reorganize: gpus must be at least 1");
  std::vector<live_gpulet> after;
  for (const gpulet& g : next) after.push_back({.id = {}, .what = g});
  const std::vector<live_gpulet>* const both[] = {&current, &after};
  for (const std::vector<live_gpulet>* all : both) {
    std::vector<std::uint32_t> size(limits.gpus, 0);
    std::vector<std::uint32_t> count(limits.gpus, 0);
    std::vector<double> memory(limits.gpus, 0.0);
    for (const live_gpulet& g : *all) {
      expects(g.what.gpu.index() < limits.gpus, "reorganize: a gpu-let is on an unknown gpu");
      size[g.what.gpu.index()] += g.what.size.percent();
      ++count[g.what.gpu.index()];
      for (const placed_model& m : g.what.models) {
        expects(m.model.index() < grid.models(), "reorganize: a gpu-let has an unknown model");
        memory[g.what.gpu.index()] += grid.profile(m.model.index()).memory_mb;
      }
    }
    for (std::size_t i = 0; i < size.size(); ++i) {
      expects(size[i] <= 100 && count[i] <= limits.max_gpulets_per_gpu &&
                  memory[i] <= limits.memory_mb * (1 + 1e-9),
              "reorganize: a plan exceeds the limits of a gpu");
    }
  }
  for (const live_gpulet& g : current) {
    part p{.id = g.id,
           .gpu = g.what.gpu,
           .size = g.what.size,
           .duty_ms = g.what.duty_ms,
           .serving = g.what.models};
    for (const placed_model& m : g.what.models) p.loaded.push_back(m.model);
    next_id_ = std::max(next_id_, g.id.value() + 1);
    parts_.push_back(std::move(p));
  }
}

/// Renames the devices of the next plan: those that keep most first.
inline void reorganizer::match_devices() {
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
  for (const pair& p : pairs) {
    if (name[p.from] != none || taken[p.to]) continue;
    name[p.from] = p.to;
    taken[p.to] = true;
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
  for (gpulet& g : next_) g.gpu = device_id{name[g.gpu.index()]};
}

/// Partitions of the same size on the same device stay, those first that keep most models.
inline void reorganizer::match_partitions() {
  for (std::size_t alike = 64; alike-- > 0;) {
    for (std::size_t t = 0; t < next_.size(); ++t) {
      if (!pending_[t]) continue;
      for (part& p : parts_) {
        if (p.target || p.gpu != next_[t].gpu || p.size != next_[t].size) continue;
        if (std::min<std::size_t>(63, likeness(p.serving, next_[t].models)) != alike) continue;
        p.target = t;
        pending_[t] = false;
        break;
      }
    }
  }
}

inline void reorganizer::emit(kind k, const part& p, model_id m) {
  out_.steps.push_back({.what = k, .partition = p.id, .gpu = p.gpu, .size = p.size, .model = m});
}
inline void reorganizer::load(part& p, model_id m) {
  emit(kind::load, p, m);
  emit(kind::warm_up, p, m);
  p.loaded.push_back(m);
  ++out_.loads;
}
inline void reorganizer::serve(part& p, double duty_ms, std::vector<placed_model> models) {
  p.duty_ms = duty_ms;
  p.serving = std::move(models);
  emit(kind::serve, p);
  out_.steps.back().duty_ms = duty_ms;
  out_.steps.back().models = p.serving;
}
inline void reorganizer::unload(part& p, model_id m) {
  emit(kind::drain, p, m);
  emit(kind::unload, p, m);
  std::erase(p.loaded, m);
}

inline bool reorganizer::wanted(model_id m) const {
  return std::ranges::any_of(next_, [m](const gpulet& g) {
    return std::ranges::find(g.models, m, &placed_model::model) != g.models.end();
  });
}
inline bool reorganizer::served_elsewhere(model_id m, const part& by) const {
  return !wanted(m) || std::ranges::any_of(parts_, [&](const part& p) {
    return &p != &by && std::ranges::find(p.serving, m, &placed_model::model) != p.serving.end();
  });
}
inline bool reorganizer::has_memory(const part& by, model_id m) const {
  double used = grid_.profile(m.index()).memory_mb;
  for (const part& p : parts_) {
    if (p.gpu != by.gpu) continue;
    for (const model_id l : p.loaded) used += grid_.profile(l.index()).memory_mb;
  }
  return used <= limits_.memory_mb * (1 + 1e-9);
}
inline bool reorganizer::has_room(const gpulet& g) const {
  std::uint32_t size = g.size.percent();
  std::uint32_t count = 1;
  for (const part& p : parts_) {
    if (p.gpu != g.gpu) continue;
    size += p.size.percent();
    ++count;
  }
  return size <= 100 && count <= limits_.max_gpulets_per_gpu;
}

/// Brings a partition nearer to its target. @returns Whether anything changed.
inline bool reorganizer::realise(part& p) {
  if (p.done) return false;
  const gpulet& g = next_[*p.target];
  bool changed = false;
  const auto serves = [&p](model_id m) {
    return std::ranges::find(p.serving, m, &placed_model::model) != p.serving.end();
  };
  const auto in_target = [&g](model_id m) {
    return std::ranges::find(g.models, m, &placed_model::model) != g.models.end();
  };
  bool all = true;
  std::vector<placed_model> models;
  for (const placed_model& m : g.models) {
    const bool there = std::ranges::find(p.loaded, m.model) != p.loaded.end();
    if (!there) {
      if (!has_memory(p, m.model)) {
        all = false;
        continue;
      }
      load(p, m.model);
      changed = true;
    }
    models.push_back(m);
  }
  bool extra = false;
  for (const placed_model& m : p.serving) {
    if (in_target(m.model) || served_elsewhere(m.model, p)) continue;
    models.push_back(m);
    extra = true;
  }
  const bool arrived = all && !extra;
  if (models != p.serving || (arrived && p.duty_ms != g.duty_ms)) {
    serve(p, arrived ? g.duty_ms : std::max(p.duty_ms, g.duty_ms), std::move(models));
    changed = true;
  }
  const std::vector<model_id> loaded = p.loaded;
  for (const model_id m : loaded) {
    if (serves(m) || in_target(m)) continue;
    unload(p, m);
    changed = true;
  }
  p.done = arrived;
  return changed || arrived;
}

inline bool reorganizer::create_targets() {
  bool changed = false;
  for (std::size_t t = 0; t < next_.size(); ++t) {
    if (!pending_[t] || !has_room(next_[t])) continue;
    part p{.id = partition_id{next_id_++},
           .gpu = next_[t].gpu,
           .size = next_[t].size,
           .duty_ms = next_[t].duty_ms,
           .target = t};
    emit(kind::create, p);
    parts_.push_back(std::move(p));
    pending_[t] = false;
    changed = true;
  }
  return changed;
}

/// Removes one partition that is not in the next plan and whose models are served elsewhere.
inline bool reorganizer::retire() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    part& p = parts_[i];
    if (p.target || !burdens(p).empty()) continue;
    if (!p.serving.empty()) serve(p, p.duty_ms, {});
    const std::vector<model_id> loaded = p.loaded;
    for (const model_id m : loaded) unload(p, m);
    emit(kind::destroy, p);
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

/// What a partition serves, is not meant to serve, and nobody else serves.
inline std::vector<placed_model> reorganizer::burdens(const part& p) const {
  std::vector<placed_model> found;
  for (const placed_model& m : p.serving) {
    const bool meant =
        p.target && std::ranges::find(next_[*p.target].models, m.model, &placed_model::model) !=
                        next_[*p.target].models.end();
    if (!meant && !served_elsewhere(m.model, p)) found.push_back(m);
  }
  return found;
}

/// Loads what stands in the way of one partition into others: of those that stay, or else of any.
inline bool reorganizer::shelter() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    bool all = true;
    std::vector<std::pair<std::size_t, placed_model>> moves;
    for (const placed_model& m : burdens(parts_[i])) {
      std::optional<std::size_t> host;
      // Where the SLO can be met at all, if there is such a place; then where it may stay.
      for (const auto& [fast, stays] :
           {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
        for (std::size_t k = 0; k < parts_.size() && !host; ++k) {
          if (k == i || parts_[k].target.has_value() != stays) continue;
          if (is_fast(parts_[k], m.model) != fast) continue;
          // Two at once may not fit where one does.
          const bool used = std::ranges::any_of(
              moves, [&](const auto& x) { return parts_[x.first].gpu == parts_[k].gpu; });
          if ((used && !std::isinf(limits_.memory_mb)) || !has_memory(parts_[k], m.model)) continue;
          host = k;
        }
      }
      if (!host) {
        all = false;
        break;
      }
      moves.emplace_back(*host, m);
    }
    if (!all || moves.empty()) continue;
    for (auto& [k, m] : moves) {
      part& host = parts_[k];
      load(host, m.model);
      std::vector<placed_model> models = host.serving;
      models.push_back(m);
      const double duty = host.duty_ms > 0 ? host.duty_ms : parts_[i].duty_ms;
      host.done = false;
      serve(host, duty, std::move(models));
    }
    return true;
  }
  return false;
}

/// Stops one model that stands in the way and that nothing can shelter.
inline bool reorganizer::interrupt() {
  for (const bool stays : {false, true}) {
    for (part& p : parts_) {
      if (p.target.has_value() != stays) continue;
      const std::vector<placed_model> found = burdens(p);
      if (found.empty()) continue;
      const model_id m = found.front().model;
      if (std::ranges::find(out_.interrupted, m) == out_.interrupted.end()) {
        out_.interrupted.push_back(m);
      }
      std::vector<placed_model> models = p.serving;
      std::erase_if(models, [m](const placed_model& x) { return x.model == m; });
      serve(p, p.duty_ms, std::move(models));
      unload(p, m);
      return true;
    }
  }
  return false;
}

inline reorganization reorganizer::run() {
  match_devices();
  match_partitions();
  // Models may be sheltered more than once, but not for ever.
  std::size_t shelters = 4 * (parts_.size() + next_.size());
  for (;;) {
    bool changed = create_targets();
    for (part& p : parts_) changed = (p.target && realise(p)) || changed;
    if (changed || retire()) continue;
    const bool arrived =
        std::ranges::none_of(pending_, [](bool b) { return b; }) &&
        std::ranges::all_of(parts_, [](const part& p) { return p.target && p.done; });
    if (arrived) break;
    if (shelters > 0 && shelter()) {
      --shelters;
      retire();
      continue;
    }
    const bool possible = interrupt();
    COHORT_ASSERT(possible);  // Without burdens every partition can go or be filled.
    if (!possible) break;
  }
  for (const part& p : parts_) {
    out_.after.push_back({.id = p.id, .what = next_[*p.target]});
  }
  return std::move(out_);
}

}  // namespace detail
}  // namespace cohort::packing
