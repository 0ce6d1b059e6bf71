// SPDX-License-Identifier: Apache-2.0
/// @file
/// Squishy bin packing: whole partitions for saturated models, residues merged in time.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing {

/// Nexus: partitions that a model saturates serve its rate first; the residue of each model, in
/// decreasing occupancy, is merged into the partition that ends fullest, or opens one. Every device
/// is cut into `parts` equal partitions. Source: Nexus (SOSP 2019), algorithm 1; gpu-let, section
/// 3. Complexity: O(models²). Thread safety: immutable.
struct basic_squishy {
  std::uint32_t parts = 1;  ///< Partitions of a device; at least 1, and 100 / parts in the grid.

  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const;
};
/// One partition a device: sharing only in time.
inline constexpr basic_squishy squishy{.parts = 1};
/// Devices cut in halves.
inline constexpr basic_squishy squishy_even{.parts = 2};

namespace detail {

/// A partition being packed.
struct squishy_node {
  std::vector<gpulet_load> loads;
  double duty_ms = 0;
  double memory_mb = 0;
  double occupancy = 0;  // Σ L / D.
  bool open = true;
};

/// The rest of a model's rate when it saturates no more partitions.
struct residue {
  gpulet_load load;
  double duty_ms = 0;
  double occupancy = 0;
};

/// Largest b with (b − 1) / r + L(b) ≤ SLO that needs no more than the whole partition;
/// D = min(b / r, SLO − L).
inline residue make_residue(const latency_grid& grid, std::size_t size, std::uint32_t model,
                            double rate_rps) noexcept {
  residue best{.load = {.model = model, .rate_rps = rate_rps}};
  for (std::uint32_t b = 1; b <= grid.max_batch(model); ++b) {
    const double latency = grid.latency(model, size, b);
    if ((b - 1) / rate_rps * 1e3 + latency > grid.slo_ms(model)) break;
    const double duty = std::min(b / rate_rps * 1e3, grid.slo_ms(model) - latency);
    if (latency > duty * (1 + tolerance)) continue;
    best.load.batch = b;
    best.duty_ms = duty;
    best.occupancy = latency / duty;
  }
  return best;
}

/// The node merged with the residue: D the smaller of both, b = ⌈r D⌉. Not open if infeasible.
inline squishy_node merged(const latency_grid& grid, std::size_t size, const packing_problem& p,
                           const squishy_node& node, const residue& r) {
  squishy_node n = node;
  n.loads.push_back(r.load);
  n.duty_ms = std::min(node.duty_ms, r.duty_ms);
  n.memory_mb += grid.profile(r.load.model).memory_mb;
  n.open = n.memory_mb <= p.memory_mb;
  double sum = 0;
  for (gpulet_load& l : n.loads) {
    l.batch = batch_to_carry(l.rate_rps, n.duty_ms, grid.max_batch(l.model));
    if (l.batch > grid.max_batch(l.model)) {
      n.open = false;
      return n;
    }
    sum += grid.latency(l.model, size, l.batch);
  }
  n.occupancy = sum / n.duty_ms;
  n.open = n.open && sum <= n.duty_ms * (1 + tolerance);
  for (const gpulet_load& l : n.loads) {
    const double after = p.rule == slo_rule::own ? grid.latency(l.model, size, l.batch) : sum;
    n.open = n.open && n.duty_ms + after <= grid.slo_ms(l.model) * (1 + tolerance);
  }
  return n;
}

/// Squishy bin packing on devices that are all cut into `parts` gpu-lets of one size of the grid.
inline packing_result squishy_on(const latency_grid& grid, const packing_problem& problem,
                                 std::size_t size, std::uint32_t parts) {
  const std::uint32_t pct = grid.size_pct(size);
  std::vector<squishy_node> nodes;
  std::vector<residue> residues;
  const std::size_t most = std::size_t{problem.gpus} * parts;
  packing_result result;
  for (std::uint32_t m = 0; m < grid.models(); ++m) {
    double left = problem.rates_rps[m];
    const double full = grid.capacity_rps(m, size);
    if (left > 0 && full <= 0) {
      result.reason = fmt::format("{}: no batch meets its SLO on {} %", grid.profile(m).name, pct);
      return result;
    }
    while (left >= full * (1 - tolerance) && full > 0 && nodes.size() <= most) {
      const std::uint32_t b = grid.capacity_batch(m, size);
      const double rate = std::min(full, left);
      nodes.push_back({.loads = {{.model = m, .rate_rps = rate, .batch = b}},
                       .duty_ms = grid.latency(m, size, b),
                       .memory_mb = grid.profile(m).memory_mb,
                       .occupancy = 1,
                       .open = false});
      left -= rate;
    }
    if (left > tolerance * problem.rates_rps[m]) {
      residues.push_back(make_residue(grid, size, m, left));
    }
  }
  sort_stably(residues, std::ranges::greater{}, &residue::occupancy);
  for (const residue& r : residues) {
    squishy_node* best = nullptr;
    squishy_node best_merge;
    for (squishy_node& n : nodes) {
      if (!n.open) continue;
      squishy_node candidate = merged(grid, size, problem, n, r);
      if (!candidate.open || (best != nullptr && candidate.occupancy <= best_merge.occupancy)) {
        continue;
      }
      best = &n;
      best_merge = std::move(candidate);
    }
    if (best != nullptr) {
      *best = std::move(best_merge);
    } else {
      nodes.push_back({.loads = {r.load},
                       .duty_ms = r.duty_ms,
                       .memory_mb = grid.profile(r.load.model).memory_mb,
                       .occupancy = r.occupancy,
                       .open = true});
    }
  }
  if (nodes.size() > most) {
    result.reason = fmt::format("more than {} partitions are needed", most);
    return result;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    gpulet g{.gpu = device_id{static_cast<std::uint32_t>(i / parts)},
             .size = device_share{pct},
             .duty_ms = nodes[i].duty_ms};
    for (const gpulet_load& l : nodes[i].loads) {
      g.models.push_back({.model = model_id{l.model},
                          .batch = grid.batch_for(l.model, size, l.batch),
                          .rate_rps = l.rate_rps});
    }
    result.plan.push_back(std::move(g));
  }
  if (const std::string over = memory_excess(grid, problem, result.plan); !over.empty()) {
    return {.reason = over};
  }
  result.status = packing_status::feasible;
  return result;
}

}  // namespace detail

inline packing_result basic_squishy::operator()(const latency_grid& grid,
                                                const packing_problem& problem) const {
  check_problem(grid, problem);
  expects(parts >= 1 && parts <= 100, "squishy: parts must be in 1 to 100");
  const std::uint32_t pct = 100 / parts;
  const auto size = grid.size_within(pct);
  expects(size && grid.size_pct(*size) == pct, "squishy: 100 / parts must be a size of the grid");
  expects(parts <= grid.options().max_gpulets_per_gpu,
          "squishy: parts must be at most max_gpulets_per_gpu");
  if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
  return detail::squishy_on(grid, problem, *size, parts);
}

}  // namespace cohort::packing
