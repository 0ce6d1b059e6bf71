// SPDX-License-Identifier: Apache-2.0
/// @file
/// Devices and gpu-lets while a greedy packer fills them.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/packers/fit_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cohort::packing::detail {

/// Starts with every device whole and free. The grid and the problem must outlive it.
class workspace {
 public:
  workspace(const latency_grid& grid, const packing_problem& problem)
      : grid_{&grid}, problem_{&problem} {
    gpulets_.reserve(2 * std::size_t{problem.gpus});
    memory_.assign(problem.gpus, 0.0);
    count_.assign(problem.gpus, 1);
    for (std::uint32_t g = 0; g < problem.gpus; ++g) {
      gpulets_.push_back({.gpu = g, .size = grid.sizes() - 1, .room_pct = 100});
    }
  }

  /// Starts with devices that are already cut, permanently: one layout for each.
  workspace(const latency_grid& grid, const packing_problem& problem,
            std::span<const layout* const> layouts)
      : grid_{&grid}, problem_{&problem} {
    memory_.assign(problem.gpus, 0.0);
    count_.assign(problem.gpus, grid.options().max_gpulets_per_gpu);
    for (std::uint32_t g = 0; g < problem.gpus; ++g) {
      for (const std::size_t s : *layouts[g]) {
        gpulets_.push_back({.gpu = g, .size = s, .room_pct = grid.size_pct(s)});
      }
    }
  }

  [[nodiscard]] const latency_grid& grid() const noexcept { return *grid_; }
  [[nodiscard]] const packing_problem& problem() const noexcept { return *problem_; }

  /// The policy's first choice of the free gpu-lets that are large enough and whose device has
  /// memory for the model.
  template <fit_policy Fit = tightest>
  [[nodiscard]] std::optional<std::size_t> best_fit(std::size_t size, std::uint32_t model,
                                                    const Fit& fit = {}) const noexcept {
    std::optional<std::size_t> best;
    double least = 0;
    for (std::size_t i = 0; i < gpulets_.size(); ++i) {
      const open_gpulet& g = gpulets_[i];
      if (!g.loads.empty() || g.size < size || !has_memory(g, model)) continue;
      const double key = fit(*grid_, size, g.size);
      if (best && key >= least) continue;
      best = i;
      least = key;
    }
    return best;
  }

  /// The size that `cut` would give that gpu-let.
  [[nodiscard]] std::size_t cut_size(std::size_t i, std::size_t size) const noexcept {
    return can_cut(i) && rest_of(i, size) ? size : gpulets_[i].size;
  }
  /// Cuts a gpu-let to `size` and leaves the rest of it free; no effect if it may not be cut.
  std::size_t cut(std::size_t i, std::size_t size) {
    const std::optional<std::size_t> rest = rest_of(i, size);
    if (!can_cut(i) || !rest) return i;
    const std::uint32_t gpu = gpulets_[i].gpu;
    const std::uint32_t rest_pct = gpulets_[i].room_pct - grid_->size_pct(size);
    gpulets_[i].size = size;
    gpulets_[i].room_pct = grid_->size_pct(size);
    ++count_[gpu];
    gpulets_.push_back({.gpu = gpu, .size = *rest, .room_pct = rest_pct});
    return i;
  }

  void assign(std::size_t i, std::uint32_t model, double rate_rps) {
    open_gpulet& g = gpulets_[i];
    if (g.loads.empty()) used_.push_back(i);
    for (gpulet_load& l : g.loads) {
      if (l.model != model) continue;
      l.rate_rps += rate_rps;
      return;
    }
    g.loads.push_back({.model = model, .rate_rps = rate_rps});
    memory_[g.gpu] += grid_->profile(model).memory_mb;
  }

  /// Adds the rate to the first gpu-let in use, in order of first use, that can also carry it.
  bool merge(std::uint32_t model, double rate_rps) {
    for (const std::size_t i : used_) {
      if (!fits(i, model, rate_rps)) continue;
      assign(i, model, rate_rps);
      return true;
    }
    return false;
  }

  /// Gives as much of the rate as possible to the gpu-let, free or in use, that can carry most of
  /// it; among equals the smallest. @returns That rate.
  double take_largest(std::uint32_t model, double rate_rps) {
    double most = 0;
    std::size_t best = 0;
    for (std::size_t i = 0; i < gpulets_.size(); ++i) {
      const double rate = room_for(i, model, rate_rps);
      if (rate < most * (1 - tolerance) || rate <= rate_rps * tolerance) continue;
      if (rate <= most * (1 + tolerance) && gpulets_[i].size >= gpulets_[best].size) continue;
      most = rate;
      best = i;
    }
    if (most <= 0) return most;
    if (gpulets_[best].loads.empty()) best = cut(best, gpulets_[best].size);
    assign(best, model, most);
    return most;
  }

  /// The rate of a model that a gpu-let could add to its present loads, at most `wanted_rps`.
  [[nodiscard]] double room_for(std::size_t i, std::uint32_t model, double wanted_rps) {
    const open_gpulet& g = gpulets_[i];
    if (!has_memory(g, model)) return 0;
    double carried = 0;
    scratch_.clear();
    for (const gpulet_load& l : g.loads) {
      if (l.model == model) {
        carried = l.rate_rps;
      } else {
        scratch_.push_back(l);
      }
    }
    return largest_rate(*grid_, g.size, problem_->rule, model, carried + wanted_rps, scratch_) -
           carried;
  }

  [[nodiscard]] plan make_plan() {
    plan p;
    p.reserve(used_.size());
    for (open_gpulet& g : gpulets_) {
      if (g.loads.empty()) continue;
      const duty_cycle d = fit(*grid_, g.size, problem_->rule, g.loads);
      gpulet out{.gpu = device_id{g.gpu},
                 .size = device_share{grid_->size_pct(g.size)},
                 .duty_ms = d.most_ms};
      out.models.reserve(g.loads.size());
      for (const gpulet_load& l : g.loads) {
        out.models.push_back({.model = model_id{l.model},
                              .batch = grid_->batch_for(l.model, g.size, l.batch),
                              .rate_rps = l.rate_rps});
      }
      p.push_back(std::move(out));
    }
    sort_stably(p, {}, [](const gpulet& g) { return g.gpu; });
    return p;
  }

 private:
  struct open_gpulet {
    std::uint32_t gpu = 0;
    std::size_t size = 0;        // Index in the grid: the largest that fits.
    std::uint32_t room_pct = 0;  // While free, it may be cut into sizes with this sum.
    std::vector<gpulet_load> loads{};
  };

  [[nodiscard]] bool fits(std::size_t i, std::uint32_t model, double rate_rps) {
    const open_gpulet& g = gpulets_[i];
    if (!has_memory(g, model)) return false;
    scratch_ = g.loads;
    bool there = false;
    for (gpulet_load& l : scratch_) {
      if (l.model != model) continue;
      l.rate_rps += rate_rps;
      there = true;
    }
    if (!there) scratch_.push_back({.model = model, .rate_rps = rate_rps});
    return fit(*grid_, g.size, problem_->rule, scratch_).feasible();
  }

  [[nodiscard]] bool has_memory(const open_gpulet& g, std::uint32_t model) const noexcept {
    for (const gpulet_load& l : g.loads) {
      if (l.model == model) return true;
    }
    return memory_[g.gpu] + grid_->profile(model).memory_mb <= problem_->memory_mb;
  }
  [[nodiscard]] bool can_cut(std::size_t i) const noexcept {
    return gpulets_[i].loads.empty() &&
           count_[gpulets_[i].gpu] < grid_->options().max_gpulets_per_gpu;
  }
  /// The largest size that fits beside one of that size, if any.
  [[nodiscard]] std::optional<std::size_t> rest_of(std::size_t i, std::size_t size) const noexcept {
    return grid_->size_within(gpulets_[i].room_pct - grid_->size_pct(size));
  }

  const latency_grid* grid_;
  const packing_problem* problem_;
  std::vector<open_gpulet> gpulets_;
  std::vector<std::size_t> used_;  // In the order of their first use.
  std::vector<double> memory_;     // In use, by device.
  std::vector<std::uint32_t> count_;
  std::vector<gpulet_load> scratch_;
};

}  // namespace cohort::packing::detail
