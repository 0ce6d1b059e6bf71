// SPDX-License-Identifier: Apache-2.0
/// @file
/// The single steps: creating, filling, sheltering and removing partitions.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/detail/transition_state.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

inline void transition_maker::emit(kind k, const part& p, model_id m) {
  out_.steps.push_back({.what = k, .partition = p.id, .gpu = p.gpu, .size = p.size, .model = m});
}
/// Prepares a model that the partition does not serve; it may be loaded there.
inline void transition_maker::load(part& p, model_id m) {
  if (std::ranges::find(p.loaded, m) == p.loaded.end()) {
    emit(kind::load, p, m);
    p.loaded.push_back(m);
    ++out_.loads;
  }
  emit(kind::warm_up, p, m);
}
inline void transition_maker::serve(part& p, double duty_ms, std::vector<placed_model> models) {
  p.duty_ms = duty_ms;
  p.serving = std::move(models);
  emit(kind::serve, p);
  out_.steps.back().duty_ms = duty_ms;
  out_.steps.back().models = p.serving;
}
inline void transition_maker::unload(part& p, model_id m) {
  emit(kind::drain, p, m);
  emit(kind::unload, p, m);
  std::erase(p.loaded, m);
}

/// Brings a partition nearer to its target. @returns Whether anything changed.
inline bool transition_maker::realise(part& p) {
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
    if (!serves(m.model)) {
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
  if (!same_service(models, p.serving) || (arrived && !nearly_equal(p.duty_ms, g.duty_ms))) {
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

inline bool transition_maker::create_targets() {
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

/// Removes one partition that is not in the next plan and has no models served only there.
inline bool transition_maker::retire() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    part& p = parts_[i];
    if (p.kept || p.target || !burdens(p).empty()) continue;
    if (!p.serving.empty()) serve(p, p.duty_ms, {});
    const std::vector<model_id> loaded = p.loaded;
    for (const model_id m : loaded) unload(p, m);
    emit(kind::destroy, p);
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

/// Models that only this partition serves although it is not meant to.
inline std::vector<placed_model> transition_maker::burdens(const part& p) const {
  std::vector<placed_model> found;
  for (const placed_model& m : p.serving) {
    const bool meant =
        p.target && std::ranges::find(next_[*p.target].models, m.model, &placed_model::model) !=
                        next_[*p.target].models.end();
    if (!meant && !served_elsewhere(m.model, p)) found.push_back(m);
  }
  return found;
}

/// Loads the models that keep one partition from changing into others: remaining ones if possible.
inline bool transition_maker::shelter() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].kept) continue;
    bool all = true;
    std::vector<std::pair<std::size_t, placed_model>> moves;
    for (const placed_model& m : burdens(parts_[i])) {
      std::optional<std::size_t> host;
      // Preferably where the SLO can be met at all, then where the model may stay.
      for (const auto& [fast, stays] :
           {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
        for (std::size_t k = 0; k < parts_.size() && !host; ++k) {
          if (k == i || parts_[k].kept || parts_[k].target.has_value() != stays) continue;
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

/// Stops one model that blocks a partition and that no other partition can shelter.
inline bool transition_maker::interrupt() {
  for (const bool stays : {false, true}) {
    for (part& p : parts_) {
      if (p.kept || p.target.has_value() != stays) continue;
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

inline transition transition_maker::run() {
  match_devices();
  match_partitions();
  // Models may be sheltered more than once, but not forever.
  std::size_t shelters = 4 * (parts_.size() + next_.size());
  for (;;) {
    bool changed = create_targets();
    for (part& p : parts_) changed = (p.target && realise(p)) || changed;
    if (changed || retire()) continue;
    const bool arrived =
        std::ranges::none_of(pending_, [](bool b) { return b; }) &&
        std::ranges::all_of(parts_, [](const part& p) { return p.kept || (p.target && p.done); });
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
    out_.after.push_back(p.kept ? *p.kept : live_gpulet{.id = p.id, .what = next_[*p.target]});
  }
  return std::move(out_);
}

}  // namespace cohort::packing::detail
