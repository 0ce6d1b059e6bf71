// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides whether the gpu-lets of one device are feasible together, although they slow each other.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace cohort::packing {

/// A gpu-let beside others on its device.
struct neighbour {
  std::size_t size = 0;              ///< Index in the grid.
  std::vector<gpulet_load> loads{};  ///< Their batches are set by `mutual_fit`.
  duty_cycle duty{};                 ///< Likewise.
};

/// Decides whether all gpu-lets of a device keep their promises under their mutual interference:
/// every latency grows by the worst model of each neighbour, excesses added, as in `verify`.
///
/// Each gpu-let settles at its least batches under its neighbours' present batches, repeatedly,
/// until no batch grows. If usage does not fall as the batch grows and no coefficient is negative,
/// that is the least fixed point of all together, so nothing feasible is refused. Otherwise the
/// answer is still safe: every promise was checked against the final batches. The grid must not be
/// padded and must outlive this. Memory: O(models · batches). Thread safety: immutable.
class mutual_fit {
 public:
  /// @throws config_error If the grid is padded.
  mutual_fit(const latency_grid& grid, const interference_model& interference)
      : grid_{&grid}, model_{interference} {
    expects(!grid.options().pad_for, "mutual_fit: the grid must not be padded");
    for (std::size_t m = 0; m < grid.models(); ++m) {
      first_.push_back(usage_.size());
      for (std::uint32_t b = 1; b <= grid.max_batch(m); ++b) {
        usage_.push_back(usage_of(grid.profile(m), b, 100));
      }
    }
  }

  /// Sets batches and duty cycles. @returns Whether all gpu-lets with loads are feasible.
  /// Complexity: O(Σ batches · loads · neighbours). Allocates nothing.
  bool operator()(slo_rule rule, std::span<neighbour> device) const noexcept {
    for (neighbour& n : device) {
      for (gpulet_load& l : n.loads) l.batch = 1;
    }
    for (bool grown = true; grown;) {
      grown = false;
      for (neighbour& n : device) {
        if (n.loads.empty()) continue;
        if (!settle(rule, device, n, grown)) return false;
      }
    }
    return true;
  }

 private:
  [[nodiscard]] device_usage usage(std::uint32_t model, std::size_t size,
                                   std::uint32_t batch) const noexcept {
    const std::uint32_t meant = grid_->batch_for(model, size, batch);
    const double share = grid_->size_pct(size) / 100.0;
    const device_usage& whole = usage_[first_[model] + meant - 1];
    return {.l2 = share * whole.l2, .memory = share * whole.memory};
  }
  /// L(b) under the neighbours' present batches.
  [[nodiscard]] double latency(std::span<const neighbour> device, const neighbour& at,
                               const gpulet_load& l) const noexcept {
    const device_usage self = usage(l.model, at.size, l.batch);
    double f = 1;
    for (const neighbour& n : device) {
      if (&n == &at) continue;
      double worst = 1;
      for (const gpulet_load& o : n.loads) {
        worst = std::max(
            worst, factor_between(model_, grid_->profile(l.model), self, grid_->profile(o.model),
                                  o.model, usage(o.model, n.size, o.batch)));
      }
      f += worst - 1;
    }
    return f * grid_->latency(l.model, at.size, l.batch);
  }
  [[nodiscard]] bool settle(slo_rule rule, std::span<const neighbour> device, neighbour& at,
                            bool& grown) const noexcept {
    for (;;) {
      double sum = 0;
      for (const gpulet_load& l : at.loads) sum += latency(device, at, l);
      double most = std::numeric_limits<double>::infinity();
      bool stable = true;
      for (gpulet_load& l : at.loads) {
        const double after = rule == slo_rule::own ? latency(device, at, l) : sum;
        const double slo = grid_->slo_ms(l.model);
        if (sum + after > slo * (1 + tolerance)) return false;
        most = std::min(most, slo - after);
        const std::uint32_t b = detail::batch_to_carry(l.rate_rps, sum, grid_->max_batch(l.model));
        if (b > grid_->max_batch(l.model)) return false;
        if (b > l.batch) {
          l.batch = b;
          stable = false;
        } else if (l.rate_rps > 0) {
          most = std::min(most, l.batch / l.rate_rps * 1e3);
        }
      }
      if (stable) {
        at.duty = {.least_ms = sum, .most_ms = std::max(most, sum)};
        return true;
      }
      grown = true;
    }
  }

  const latency_grid* grid_;
  interference_model model_;
  std::vector<std::size_t> first_;  // By model: first index in `usage_`.
  std::vector<device_usage> usage_;
};

}  // namespace cohort::packing
