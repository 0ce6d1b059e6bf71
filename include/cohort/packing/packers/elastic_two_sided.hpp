// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elastic partitioning that checks both gpu-lets of every device instead of padding.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/mutual_fit.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/knee.hpp>
#include <cohort/packing/packers/order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::packing {

namespace detail {

/// Devices while a packer fills them, each gpu-let checked with its neighbours.
class two_sided_devices {
 public:
  two_sided_devices(const latency_grid& grid, const packing_problem& problem,
                    const interference_model& interference)
      : grid_{grid}, problem_{problem}, fits_{grid, interference}, devices_(problem.gpus) {
    for (device& d : devices_) {
      d.lets.push_back({.size = grid.sizes() - 1});
      d.room_pct.push_back(100);
    }
  }

  /// Places one model as algorithm 1 does. @returns The rate that could not be placed.
  double place(std::uint32_t model, double rate, std::size_t knee) {
    double left = rate;
    while (left > rate * tolerance) {
      const std::size_t needed = least_size(grid_, problem_.rule, model, left);
      const std::size_t ideal = std::min({knee, needed, grid_.sizes() - 1});
      double part = fill_free(model, left, ideal);
      if (part <= rate * tolerance) part = fill_largest(model, left, rate);
      if (part <= rate * tolerance) return left;
      left -= part;
    }
    return 0;
  }

  [[nodiscard]] plan make_plan() {
    plan p;
    for (std::uint32_t g = 0; g < devices_.size(); ++g) {
      fits_(problem_.rule, devices_[g].lets);
      for (const neighbour& n : devices_[g].lets) {
        if (n.loads.empty()) continue;
        gpulet out{.gpu = device_id{g},
                   .size = device_share{grid_.size_pct(n.size)},
                   .duty_ms = n.duty.most_ms};
        for (const gpulet_load& l : n.loads) {
          out.models.push_back({.model = model_id{l.model},
                                .batch = grid_.batch_for(l.model, n.size, l.batch),
                                .rate_rps = l.rate_rps});
        }
        p.push_back(std::move(out));
      }
    }
    return p;
  }

 private:
  struct device {
    std::vector<neighbour> lets{};
    std::vector<std::uint32_t> room_pct{};  // By gpu-let: sizes it may be cut into while free.
    double memory_mb = 0;
  };
  struct position {
    std::size_t device;
    std::size_t let;
  };

  /// Fills the smallest free gpu-let of at least the ideal size that keeps both sides' promises,
  /// whole or cut; or a gpu-let in use that carries as much, if there is one.
  double fill_free(std::uint32_t model, double left, std::size_t ideal) {
    std::vector<position> free;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      for (std::size_t i = 0; i < devices_[d].lets.size(); ++i) {
        const neighbour& n = devices_[d].lets[i];
        if (n.loads.empty() && n.size >= ideal) free.push_back({d, i});
      }
    }
    sort_stably(free, {},
                [this](const position& x) { return devices_[x.device].lets[x.let].size; });
    for (const position& x : free) {
      device trial = devices_[x.device];
      cut(trial, x.let, ideal);
      const double part = room(trial, x.let, model, left);
      if (part <= left * tolerance) continue;
      for (const position& used : used_) {
        if (!carries(devices_[used.device], used.let, model, part)) continue;
        assign(devices_[used.device], used.let, model, part);
        return part;
      }
      devices_[x.device] = std::move(trial);
      assign(devices_[x.device], x.let, model, part);
      used_.push_back(x);
      return part;
    }
    return 0;
  }

  /// Fills the gpu-let, free or in use, that takes most, as much as possible.
  double fill_largest(std::uint32_t model, double left, double rate) {
    double most = rate * tolerance;
    std::optional<position> best;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      for (std::size_t i = 0; i < devices_[d].lets.size(); ++i) {
        const double part = room(devices_[d], i, model, left);
        if (part <= most) continue;
        most = part;
        best = position{d, i};
      }
    }
    if (!best) return 0;
    device& d = devices_[best->device];
    if (d.lets[best->let].loads.empty()) {
      used_.push_back(*best);
      cut(d, best->let, d.lets[best->let].size);
    }
    assign(d, best->let, model, most);
    return most;
  }

  /// Cuts a free gpu-let if allowed; the rest of it becomes free.
  void cut(device& d, std::size_t let, std::size_t size) const {
    if (d.lets.size() >= grid_.options().max_gpulets_per_gpu || d.lets[let].size < size) return;
    const std::uint32_t rest_pct = d.room_pct[let] - grid_.size_pct(size);
    const auto rest = grid_.size_within(rest_pct);
    if (!rest) return;
    d.lets[let].size = size;
    d.room_pct[let] = grid_.size_pct(size);
    d.lets.push_back({.size = *rest});
    d.room_pct.push_back(rest_pct);
  }
  void assign(device& d, std::size_t let, std::uint32_t model, double rate) const {
    for (gpulet_load& l : d.lets[let].loads) {
      if (l.model != model) continue;
      l.rate_rps += rate;
      return;
    }
    d.lets[let].loads.push_back({.model = model, .rate_rps = rate});
    d.memory_mb += grid_.profile(model).memory_mb;
  }
  [[nodiscard]] bool carries(device d, std::size_t let, std::uint32_t model, double rate) const {
    assign(d, let, model, rate);
    return d.memory_mb <= problem_.memory_mb && fits_(problem_.rule, d.lets);
  }
  /// The largest rate, at most `wanted`, that a gpu-let can take without breaking its neighbours.
  [[nodiscard]] double room(const device& d, std::size_t let, std::uint32_t model,
                            double wanted) const {
    if (carries(d, let, model, wanted)) return wanted;
    double low = 0;
    double high = std::min(wanted, grid_.capacity_rps(model, d.lets[let].size));
    if (carries(d, let, model, high)) return high;
    for (int step = 0; step < 24 && high - low > 1e-6 * wanted; ++step) {
      const double middle = (low + high) / 2;
      (carries(d, let, model, middle) ? low : high) = middle;
    }
    return low;
  }

  const latency_grid& grid_;
  const packing_problem& problem_;
  mutual_fit fits_;
  std::vector<device> devices_;
  std::vector<position> used_;  // In the order of their first use.
};

}  // namespace detail

/// gpu-let's algorithm 1 with interference as published: latencies are as measured, and each
/// placement must keep the promises of both gpu-lets of its device at that time. An early placement
/// is not protected by a margin; it only blocks later ones that would break it. `elastic_int` on a
/// padded grid admits far more.
/// @tparam Order Which model is placed first.  @tparam Knee The size at which a model is cheapest.
/// Complexity: O((models + gpus) · gpulets · 24 fits). Thread safety: immutable.
template <order_policy Order = rate_slo_ascending, knee_policy Knee = most_per_size>
struct basic_elastic_two_sided {
  interference_model interference{};
  [[no_unique_address]] Order order{};
  [[no_unique_address]] Knee knee{};

  /// @throws config_error If the grid is padded, or the problem is out of range.
  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    check_problem(grid, problem);
    detail::two_sided_devices devices{grid, problem, interference};
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    for (const std::uint32_t m : ordered_models(order, grid, problem)) {
      const double left = devices.place(m, problem.rates_rps[m], knee(grid, m, grid.all_sizes()));
      if (left > 0) {
        return {.reason = fmt::format("{}: {:.6g} of {:.6g} requests a second fit no gpu-let whose "
                                      "neighbours tolerate it",
                                      grid.profile(m).name, left, problem.rates_rps[m])};
      }
    }
    return {.status = packing_status::feasible, .plan = devices.make_plan()};
  }
};

using elastic_two_sided = basic_elastic_two_sided<>;
static_assert(packer<elastic_two_sided>);

}  // namespace cohort::packing
