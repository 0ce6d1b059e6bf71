// SPDX-License-Identifier: Apache-2.0
#include "partition_cbc.hpp"

#include "cbc_program.hpp"

#include <cohort/core/error.hpp>
#include <cohort/packing/model/requirements.hpp>

#include <Cbc_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::packing {
namespace {

/// Batches of the models in demand, run in turn on a gpu-let of one size; 0: absent.
struct configuration {
  std::size_t size = 0;
  double sum_ms = 0;
  std::vector<std::uint32_t> batches;
};

/// Lists batch vectors up to a limit.
class lister {
 public:
  lister(const latency_grid& grid, slo_rule rule, const std::vector<std::uint32_t>& models,
         std::size_t most)
      : grid_{grid}, rule_{rule}, models_{models}, most_{most} {}

  /// @param sharing Maximum models on a gpu-let. @param coarse Only batches of a few sizes.
  [[nodiscard]] std::optional<std::vector<configuration>> list(std::size_t sharing, bool coarse) {
    coarse_ = coarse;
    all_.clear();
    for (std::size_t s = 0; s < grid_.sizes(); ++s) {
      configuration c{.size = s, .batches = std::vector<std::uint32_t>(models_.size(), 0)};
      if (!extend(c, 0, sharing)) return std::nullopt;
    }
    return std::move(all_);
  }

 private:
  [[nodiscard]] bool keeps_slos(const configuration& c) const {
    for (std::size_t i = 0; i < models_.size(); ++i) {
      if (c.batches[i] == 0) continue;
      const double own = grid_.latency(models_[i], c.size, c.batches[i]);
      const double worst = c.sum_ms + (rule_ == slo_rule::own ? own : c.sum_ms);
      if (worst > grid_.slo_ms(models_[i]) * (1 + 1e-9)) return false;
    }
    return true;
  }
  bool extend(configuration& c, std::size_t i, std::size_t sharing) {
    if (!keeps_slos(c)) return true;  // A longer cycle is worse.
    if (i == models_.size()) {
      if (c.sum_ms > 0) all_.push_back(c);
      return all_.size() <= most_;
    }
    if (!extend(c, i + 1, sharing)) return false;
    if (sharing == 0) return true;
    const double before = c.sum_ms;
    bool room = true;
    for (std::uint32_t b = 1; room && b <= grid_.max_batch(models_[i]); ++b) {
      if (coarse_ && b > 4 && b % 4 != 0) continue;
      c.batches[i] = b;
      c.sum_ms = before + grid_.latency(models_[i], c.size, b);
      room = extend(c, i + 1, sharing - 1);
    }
    c.batches[i] = 0;
    c.sum_ms = before;
    return room;
  }

  const latency_grid& grid_;
  slo_rule rule_;
  const std::vector<std::uint32_t>& models_;
  std::size_t most_;
  bool coarse_ = false;
  std::vector<configuration> all_;
};

/// Every way to cut a device without usable remainder, as counts by size, whatever the sizes.
void cut_device(const latency_grid& grid, std::size_t from, std::uint32_t room,
                std::uint32_t places, std::vector<std::uint32_t>& counts,
                std::vector<std::vector<std::uint32_t>>& into) {
  bool full = true;
  for (std::size_t s = 0; s < grid.sizes() && places > 0; ++s) {
    if (grid.size_pct(s) > room) break;
    full = false;
    if (s < from) continue;  // Sizes ascend, so that each way occurs once.
    ++counts[s];
    cut_device(grid, s, room - grid.size_pct(s), places - 1, counts, into);
    --counts[s];
  }
  if (full) into.push_back(counts);
}

/// Assigns the gpu-lets of the solution to devices, each with as much of the remaining demand as it
/// can carry.
plan make_plan(const latency_grid& grid, const packing_problem& problem,
               const std::vector<std::uint32_t>& models, std::vector<configuration> used,
               const std::vector<const std::vector<std::uint32_t>*>& devices) {
  plan made;
  std::vector<double> left = problem.rates_rps;
  for (std::uint32_t g = 0; g < devices.size(); ++g) {
    for (std::size_t s = 0; s < grid.sizes(); ++s) {
      for (std::uint32_t n = 0; n < (*devices[g])[s]; ++n) {
        const auto at = std::ranges::find(used, s, &configuration::size);
        if (at == used.end()) continue;
        gpulet let{
            .gpu = device_id{g}, .size = device_share{grid.size_pct(s)}, .duty_ms = at->sum_ms};
        for (std::size_t i = 0; i < models.size(); ++i) {
          if (at->batches[i] == 0) continue;
          double& need = left[models[i]];
          const double rate = std::min(need, at->batches[i] / at->sum_ms * 1e3);
          need -= rate;
          let.models.push_back({.model = model_id{models[i]},
                                .batch = grid.batch_for(models[i], s, at->batches[i]),
                                .rate_rps = rate});
        }
        used.erase(at);
        made.push_back(std::move(let));
      }
    }
  }
  return made;
}

}  // namespace

partition_answer solve_partition_with_cbc(const latency_grid& grid, const packing_problem& problem,
                                          double limit_s, std::size_t most_columns) {
  check_problem(grid, problem);
  expects(limit_s > 0 && std::isfinite(limit_s),
          "solve_partition_with_cbc: limit_s must be above 0");
  std::vector<std::uint32_t> models;
  for (std::uint32_t m = 0; m < grid.models(); ++m) {
    if (problem.rates_rps[m] > 0) models.push_back(m);
  }
  partition_answer a;
  lister batches{grid, problem.rule, models, most_columns};
  std::optional<std::vector<configuration>> columns = batches.list(models.size(), false);
  a.complete = columns.has_value();
  for (const bool coarse : {false, true}) {
    for (std::size_t sharing = models.size(); !columns && sharing > 0; --sharing) {
      columns = batches.list(sharing, coarse);
    }
  }
  std::vector<std::vector<std::uint32_t>> layouts;
  std::vector<std::uint32_t> counts(grid.sizes(), 0);
  cut_device(grid, 0, 100, grid.options().max_gpulets_per_gpu, counts, layouts);
  if (!columns) return a;

  constexpr double none = std::numeric_limits<double>::max();
  cbc_program p;
  const int devices = p.add_row(0, problem.gpus);
  std::vector<int> rate_rows;
  for (std::size_t i = 0; i < models.size(); ++i) rate_rows.push_back(p.add_row(1 - 1e-9, none));
  std::vector<int> place_rows;
  for (std::size_t s = 0; s < grid.sizes(); ++s) place_rows.push_back(p.add_row(-none, 0));
  for (const configuration& c : *columns) {
    const int x = p.add_column(0, none, 0);
    p.set(place_rows[c.size], x, 1);
    for (std::size_t i = 0; i < models.size(); ++i) {
      p.set(rate_rows[i], x, c.batches[i] / c.sum_ms * 1e3 / problem.rates_rps[models[i]]);
    }
  }
  for (const std::vector<std::uint32_t>& l : layouts) {
    const int y = p.add_column(0, problem.gpus, 1);
    p.set(devices, y, 1);
    for (std::size_t s = 0; s < grid.sizes(); ++s) {
      p.set(place_rows[s], y, -static_cast<double>(l[s]));
    }
  }
  const std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model{Cbc_newModel(), Cbc_deleteModel};
  p.load(model.get());
  const std::size_t all = columns->size() + layouts.size();
  for (std::size_t i = 0; i < all; ++i) Cbc_setInteger(model.get(), static_cast<int>(i));
  Cbc_setParameter(model.get(), "log", "0");
  Cbc_setParameter(model.get(), "seconds", std::to_string(limit_s).c_str());
  Cbc_setParameter(model.get(), "maxSolutions", "1");  // Any plan will do.
  Cbc_solve(model.get());
  if (Cbc_isProvenInfeasible(model.get()) != 0) {
    if (a.complete) a.status = packing_status::infeasible;
    return a;
  }
  const double* values = Cbc_getColSolution(model.get());
  if (values == nullptr || Cbc_numberSavedSolutions(model.get()) == 0) return a;
  std::vector<configuration> used;
  for (std::size_t i = 0; i < columns->size(); ++i) {
    for (auto n = std::lround(values[i]); n > 0; --n) used.push_back((*columns)[i]);
  }
  std::vector<const std::vector<std::uint32_t>*> cut;
  for (std::size_t l = 0; l < layouts.size(); ++l) {
    for (auto n = std::lround(values[columns->size() + l]); n > 0; --n) cut.push_back(&layouts[l]);
  }
  if (cut.size() > problem.gpus) return a;
  a.plan = make_plan(grid, problem, models, std::move(used), cut);
  a.status = packing_status::feasible;
  return a;
}

}  // namespace cohort::packing
