// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state while the steps from one plan to the next are computed.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::packing::detail {

/// Whether two rates or times of plans are equal except for rounding. A plan recomputed from the
/// same counts in another order is the same plan, which needs no transition.
[[nodiscard]] inline bool nearly_equal(double a, double b) noexcept {
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}
/// Whether both serve the same models, with equal batches and rates.
[[nodiscard]] inline bool same_service(const std::vector<placed_model>& a,
                                       const std::vector<placed_model>& b) noexcept {
  return std::ranges::equal(a, b, [](const placed_model& x, const placed_model& y) {
    return x.model == y.model && x.batch == y.batch && nearly_equal(x.rate_rps, y.rate_rps);
  });
}

/// Computes the steps, and tracks the state that they lead to.
class transition_maker {
 public:
  transition_maker(const latency_grid& grid, const std::vector<live_gpulet>& current,
                   const plan& next, const transition_limits& limits);
  transition run();

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
    const live_gpulet* kept = nullptr;  // Its device is set aside: it stays unchanged.
    bool is_out = false;
  };
  using kind = transition_step::kind;

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
  transition_limits limits_;
  std::vector<part> parts_;
  std::vector<bool> pending_;  // By gpu-let of the next plan: it has no partition yet.
  std::uint32_t next_id_ = 0;
  transition out_;
};

inline bool transition_maker::wanted(model_id m) const {
  return std::ranges::any_of(next_, [m](const gpulet& g) {
    return std::ranges::find(g.models, m, &placed_model::model) != g.models.end();
  });
}
inline bool transition_maker::served_elsewhere(model_id m, const part& by) const {
  return !wanted(m) || std::ranges::any_of(parts_, [&](const part& p) {
    return &p != &by && !p.is_out &&
           std::ranges::find(p.serving, m, &placed_model::model) != p.serving.end();
  });
}
inline bool transition_maker::has_memory(const part& by, model_id m) const {
  if (std::ranges::find(by.loaded, m) != by.loaded.end()) return true;
  double used = grid_.profile(m.index()).memory_mb;
  for (const part& p : parts_) {
    if (p.gpu != by.gpu) continue;
    for (const model_id l : p.loaded) used += grid_.profile(l.index()).memory_mb;
  }
  return used <= limits_.memory_mb * (1 + 1e-9);
}
inline bool transition_maker::has_room(const gpulet& g) const {
  std::uint32_t size = g.size.percent();
  std::uint32_t count = 1;
  for (const part& p : parts_) {
    if (p.gpu != g.gpu) continue;
    size += p.size.percent();
    ++count;
  }
  return size <= 100 && count <= limits_.max_gpulets_per_gpu;
}

}  // namespace cohort::packing::detail
