// SPDX-License-Identifier: Apache-2.0
#include "subcluster_cbc.hpp"

#include "cbc_program.hpp"

#include <cohort/packing/detail/sort_stably.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::packing {
namespace {

/// Values near 1 suit the solver's tolerances: rates and memories are relative to their averages.
struct scaled {
  std::vector<double> rate;
  std::vector<double> memory;
  std::vector<double> dynamic;
  double rate_unit = 1;
  double memory_unit = 1;
  double weight = 0;

  explicit scaled(const subcluster_problem& p) {
    if (p.average_rate() > 0) rate_unit = p.average_rate();
    if (p.average_memory() > 0) memory_unit = p.average_memory();
    weight = p.effective_weight() * memory_unit / rate_unit;
    for (const subcluster_model& m : p.models) {
      rate.push_back(m.rate_rps / rate_unit);
      memory.push_back(m.static_mb / memory_unit);
      dynamic.push_back(m.dynamic_mb / memory_unit);
    }
  }
};

/// Columns: x(i, j) at i · count + j, then R, S and the largest dynamic memory of each sub-cluster.
cbc_program formulate(const subcluster_problem& p, const scaled& s) {
  const std::size_t models = p.models.size();
  const std::size_t count = p.count;
  constexpr double none = std::numeric_limits<double>::max();  // No limit, to the solver.
  cbc_program out;
  std::vector<std::size_t> order(models);
  std::iota(order.begin(), order.end(), std::size_t{0});
  detail::sort_stably(order, std::ranges::greater{},
                      [&s](std::size_t i) { return s.rate[i] + s.weight * s.memory[i]; });
  std::vector<std::size_t> rank(models);
  for (std::size_t k = 0; k < models; ++k) rank[order[k]] = k;
  for (std::size_t i = 0; i < models; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      out.add_column(0, p.current.empty() && j > rank[i] ? 0 : 1, 0);
    }
  }
  const int rate_off = out.add_column(0, none, 1);
  const int memory_off = out.add_column(0, none, s.weight);
  const auto x = [count](std::size_t i, std::size_t j) { return static_cast<int>(i * count + j); };
  for (std::size_t i = 0; i < models; ++i) {
    const int row = out.add_row(1, 1);
    for (std::size_t j = 0; j < count; ++j) out.set(row, x(i, j), 1);
  }
  constexpr double slack = 1 + 1e-9;  // As in `detail::within`.
  const auto sums = [&](const std::vector<double>& parts, std::size_t j, int row) {
    for (std::size_t i = 0; i < models; ++i) out.set(row, x(i, j), parts[i]);
  };
  const double mean_rate = p.average_rate() > 0 ? 1 : 0;
  const double mean_memory = p.average_memory() > 0 ? 1 : 0;
  for (std::size_t j = 0; j < count; ++j) {
    if (std::isfinite(p.rate_cap_rps)) {
      sums(s.rate, j, out.add_row(-none, p.rate_cap_rps / s.rate_unit * slack));
    }
    for (const auto& [parts, off, mean] :
         {std::tuple{&s.rate, rate_off, mean_rate}, {&s.memory, memory_off, mean_memory}}) {
      const int above = out.add_row(-none, mean);
      const int below = out.add_row(mean, none);
      sums(*parts, j, above);
      sums(*parts, j, below);
      out.set(above, off, -1);
      out.set(below, off, 1);
    }
    if (std::isfinite(p.memory_mb)) {
      const int largest = out.add_column(0, none, 0);
      for (std::size_t i = 0; i < models; ++i) {
        if (s.dynamic[i] <= 0) continue;
        const int row = out.add_row(0, none);
        out.set(row, largest, 1);
        out.set(row, x(i, j), -s.dynamic[i]);
      }
      const int all = out.add_row(-none, p.memory_mb / s.memory_unit * slack);
      sums(s.memory, j, all);
      out.set(all, largest, 1);
    }
  }
  if (std::isfinite(p.max_move_cost) && !p.current.empty()) {
    double all = 0;
    for (const subcluster_model& m : p.models) all += m.move_cost;
    // Models that stay cost nothing.
    const int row = out.add_row(all - p.max_move_cost * slack, none);
    for (std::size_t i = 0; i < models; ++i)
      out.set(row, x(i, p.current[i]), p.models[i].move_cost);
  }
  return out;
}

}  // namespace

cbc_answer solve_with_cbc(const subcluster_problem& p, double limit_s) {
  check_problem(p);
  expects(limit_s > 0 && std::isfinite(limit_s), "solve_with_cbc: limit_s must be above 0");
  const scaled s{p};
  const std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model{Cbc_newModel(), Cbc_deleteModel};
  formulate(p, s).load(model.get());
  const auto binaries = static_cast<int>(p.models.size() * p.count);
  for (int i = 0; i < binaries; ++i) Cbc_setInteger(model.get(), i);
  Cbc_setParameter(model.get(), "log", "0");
  Cbc_setParameter(model.get(), "seconds", std::to_string(limit_s).c_str());
  Cbc_setParameter(model.get(), "ratioGap", std::to_string(cbc_gap).c_str());
  Cbc_setParameter(model.get(), "allowableGap", "0");
  Cbc_solve(model.get());

  cbc_answer a;
  if (Cbc_isProvenInfeasible(model.get()) != 0) {
    a.what = cbc_answer::status::infeasible;
    return a;
  }
  a.bound = std::max(0.0, Cbc_getBestPossibleObjValue(model.get()) * s.rate_unit);
  const double* values = Cbc_getColSolution(model.get());
  if (values == nullptr || Cbc_numberSavedSolutions(model.get()) == 0) return a;
  subcluster_assignment found(p.models.size(), 0);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double* row = values + i * p.count;
    found[i] = static_cast<std::uint32_t>(std::max_element(row, row + p.count) - row);
  }
  // The solver's rounding is checked here.
  if (!verify(p, found).empty()) return a;
  a.objective = evaluate(p, found).objective;
  a.best = std::move(found);
  a.what = Cbc_isProvenOptimal(model.get()) != 0 ? cbc_answer::status::optimal
                                                 : cbc_answer::status::feasible;
  return a;
}

}  // namespace cohort::packing
