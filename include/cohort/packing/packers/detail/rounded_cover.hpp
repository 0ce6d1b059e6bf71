// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans for many devices: most from a linear program, the rest by another packer.
#pragma once

#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/detail/cover_lp.hpp>
#include <cohort/packing/packers/detail/gpulet_worth.hpp>
#include <cohort/packing/packers/detail/shared_gpulet.hpp>
#include <cohort/packing/packers/work_bound.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

/// Rounds a linear program over whole devices, with gpu-lets that one or more models fill. It takes
/// all whole devices of the solution, then one more at a time, drawn in proportion to the
/// fractional remainder; at each step `rest` tries to plan the remaining demand on the remaining
/// devices. If models have more than a few gpu-lets each, that is close to the best plan. `rest`
/// checks the memory of its devices, and finally all are checked. For some tens of models. Thread
/// safety: none.
class rounded_cover {
 public:
  /// Packs the remaining demand.
  using packer_of_rest = std::function<packing_result(const packing_problem&)>;

  rounded_cover(const latency_grid& grid, const packing_problem& problem, packer_of_rest rest)
      : grid_{grid}, problem_{problem}, rest_{std::move(rest)} {}

  /// Whether the linear program proves that there is no plan, by the prices of its solution or
  /// those of one with the missing gpu-lets added.
  [[nodiscard]] bool excludes(const std::function<bool()>& stop) {
    for (int step = 0; step < 20 && !(stop && stop()); ++step) {
      relax(problem_);
      if (wanted_.empty() || lp_.covered() >= 1) return false;
      const std::vector<double>& prices = lp_.prices();
      shared_gpulet share{grid_, problem_.rule, wanted_};
      gpulet_worth exactly{grid_, problem_.rule, wanted_};
      std::vector<double> most(grid_.sizes());
      bool better = false;
      for (std::size_t s = 0; s < most.size(); ++s) {
        priced_gpulet known = known_best(s, prices, share(s, prices, need_));
        const double before = known.worth;
        gpulet_worth::answer a = exactly(s, prices, need_, std::move(known));
        most[s] = a.most;
        if (a.best.worth <= before * (1 + 1e-6)) continue;
        better = true;
        known_.push_back({s, std::move(a.best.loads)});
      }
      if (problem_.gpus * size_prices{grid_, problem_}.device_worth(most) < 1 - proof_margin)
        return true;
      if (!better) return false;
    }
    return false;
  }

  /// One try. @param seed Of the random draws. @returns A plan, if it found one.
  [[nodiscard]] std::optional<plan> operator()(std::uint64_t seed) {
    std::mt19937_64 random{seed};
    packing_problem left = problem_;
    plan made;
    for (bool first = true; left.gpus > 0; first = false) {
      if (packing_result r = rest_(left); r.schedulable()) {
        for (gpulet& g : r.plan) {
          g.gpu = device_id{static_cast<std::uint32_t>(g.gpu.index()) + problem_.gpus - left.gpus};
          made.push_back(std::move(g));
        }
        if (!memory_excess(grid_, problem_, made).empty()) return std::nullopt;
        return made;
      }
      relax(left);
      if (lp_.covered() < 1 - 1e-6) return std::nullopt;
      std::vector<cover_lp::use> uses = lp_.uses();
      bool any = false;
      for (const cover_lp::use& u : uses) {
        // If more than the demand is covered, the excess stays free.
        auto whole = static_cast<std::uint32_t>(std::floor(u.amount / lp_.covered() + 1e-9));
        // Later tries leave more to the packer of the rest.
        if (first && seed > 0 && whole > 0 && random() % 2 == 0) --whole;
        for (; whole > 0 && left.gpus > 0; --whole, any = true) take(columns_[u.call], left, made);
      }
      if (any) continue;
      double sum = 0;
      for (const cover_lp::use& u : uses) sum += u.amount;
      double at = sum * static_cast<double>(random() >> 11U) * 0x1p-53;
      std::size_t chosen = 0;
      while (chosen + 1 < uses.size() && at >= uses[chosen].amount) at -= uses[chosen++].amount;
      if (uses.empty()) return std::nullopt;
      take(columns_[uses[chosen].call], left, made);
    }
    return std::nullopt;
  }

 private:
  /// A gpu-let and its batches.
  struct place {
    std::size_t size = 0;
    std::vector<gpulet_load> loads{};
  };
  using device = std::vector<place>;

  /// Solves the linear program for the remaining demand.
  void relax(const packing_problem& left) {
    wanted_.clear();
    need_.clear();
    for (std::uint32_t m = 0; m < grid_.models(); ++m) {
      if (left.rates_rps[m] <= 0) continue;
      wanted_.push_back(m);
      need_.push_back(left.rates_rps[m]);
    }
    columns_.clear();
    size_prices devices{grid_, left};
    shared_gpulet share{grid_, left.rule, wanted_};
    std::vector<priced_gpulet> best(grid_.sizes());
    std::vector<double> worth(grid_.sizes());
    std::vector<double> rates(wanted_.size());
    const double count = left.gpus;
    lp_.solve({&count, 1}, need_, [&](std::size_t, std::span<const double> prices) {
      for (std::size_t s = 0; s < worth.size(); ++s) {
        best[s] = known_best(s, prices, share(s, prices, need_));
        worth[s] = best[s].worth;
      }
      static_cast<void>(devices.device_worth(worth));
      std::ranges::fill(rates, 0.0);
      device d;
      for (std::size_t s = 0; s < worth.size(); ++s) {
        for (double n = devices.layout()[s]; n > 0; --n) {
          d.push_back({s, best[s].loads});
          for (const gpulet_load& l : best[s].loads) {
            const auto at = std::ranges::find(wanted_, l.model);
            const auto i = static_cast<std::size_t>(at - wanted_.begin());
            rates[i] += std::min(l.rate_rps, need_[i]);
          }
        }
      }
      columns_.push_back(std::move(d));
      return std::span<const double>{rates};
    });
  }

  /// The better of `found` and the known ones of that size.
  [[nodiscard]] priced_gpulet known_best(std::size_t size, std::span<const double> prices,
                                         priced_gpulet found) const {
    for (const place& p : known_) {
      if (p.size != size) continue;
      double worth = 0;
      for (const gpulet_load& l : p.loads) {
        const auto at = std::ranges::find(wanted_, l.model);
        if (at == wanted_.end()) continue;
        const auto i = static_cast<std::size_t>(at - wanted_.begin());
        worth += prices[i] * std::min(l.rate_rps, need_[i]);
      }
      if (worth <= found.worth) continue;
      found = {.worth = worth, .loads = p.loads};
      std::erase_if(found.loads, [this](const gpulet_load& l) {
        return std::ranges::find(wanted_, l.model) == wanted_.end();
      });
    }
    return found;
  }

  /// Fills the next device.
  void take(const device& d, packing_problem& left, plan& into) const {
    const device_id gpu{problem_.gpus - left.gpus};
    --left.gpus;
    for (const place& p : d) {
      std::vector<gpulet_load> loads;
      for (gpulet_load l : p.loads) {
        double& need = left.rates_rps[l.model];
        l.rate_rps = std::min(need, l.rate_rps);
        if (l.rate_rps <= 0) continue;
        need -= l.rate_rps;
        if (need <= tolerance * problem_.rates_rps[l.model]) need = 0;
        loads.push_back(l);
      }
      if (loads.empty()) continue;
      const duty_cycle duty = fit(grid_, p.size, problem_.rule, loads);
      gpulet out{.gpu = gpu, .size = device_share{grid_.size_pct(p.size)}, .duty_ms = duty.most_ms};
      for (const gpulet_load& l : loads) {
        out.models.push_back({.model = model_id{l.model},
                              .batch = grid_.batch_for(l.model, p.size, l.batch),
                              .rate_rps = l.rate_rps});
      }
      into.push_back(std::move(out));
    }
  }

  const latency_grid& grid_;
  const packing_problem& problem_;
  packer_of_rest rest_;
  cover_lp lp_;
  std::vector<std::uint32_t> wanted_;  // Models with unserved demand.
  std::vector<double> need_;           // Unserved rate of each model.
  std::vector<device> columns_;
  std::vector<place> known_;  // Good ones that `shared_gpulet` misses.
};

}  // namespace cohort::packing::detail
