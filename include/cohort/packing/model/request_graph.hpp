// SPDX-License-Identifier: Apache-2.0
/// @file
/// Applications of several models: series-parallel graphs, and their SLO split over the stages.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/packing/model/latency_grid.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace cohort::packing {

/// The models that one request of an application runs: a single model, parts in series, or parts in
/// parallel. A value; built from the inside out.
class request_graph {
 public:
  enum class kind : std::uint8_t { model, series, parallel };

  /// One model, which each request runs `times` times at once (such as the mean number of objects
  /// that a detector finds). @throws config_error If `times` is not above 0.
  [[nodiscard]] static request_graph model(model_id m, double times = 1) {
    expects(times > 0 && std::isfinite(times), "request_graph: times must be above 0");
    request_graph g{kind::model, {}};
    g.model_ = m;
    g.times_ = times;
    return g;
  }
  /// Each part starts when the previous one has ended. @throws config_error If there is no part.
  [[nodiscard]] static request_graph series(std::vector<request_graph> parts) {
    return {kind::series, std::move(parts)};
  }
  /// All parts start at once; it ends with the last. @throws config_error If there is no part.
  [[nodiscard]] static request_graph parallel(std::vector<request_graph> parts) {
    return {kind::parallel, std::move(parts)};
  }

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] model_id model() const noexcept { return model_; }  ///< Only of a model.
  [[nodiscard]] double times() const noexcept { return times_; }    ///< Only of a model.
  [[nodiscard]] const std::vector<request_graph>& parts() const noexcept { return parts_; }

  /// Calls `f(model, times)` for each model in the graph, in order; one may occur more than once.
  template <class F>
  void for_each_model(F&& f) const {
    if (kind_ == kind::model) f(model_, times_);
    for (const request_graph& p : parts_) p.for_each_model(f);
  }

 private:
  request_graph(kind k, std::vector<request_graph> parts) : kind_{k}, parts_{std::move(parts)} {
    expects(k == kind::model || !parts_.empty(), "request_graph: there must be at least one part");
  }

  kind kind_;
  model_id model_{};
  double times_ = 1;
  std::vector<request_graph> parts_;
};

/// An application: its graph, how often it runs, and its SLO.
struct application {
  request_graph graph;
  double slo_ms = 0;    ///< From arrival to the end of its last part; above 0.
  double rate_rps = 0;  ///< At least 0.
};

namespace detail {

/// Relative extra work accepted for a smaller budget: measured latencies agree no more closely, so
/// a batch that is better by less is better by chance.
inline constexpr double budget_slack = 0.005;

/// Least work of a graph, in devices, for every budget of 0 to n steps; also for its parts.
struct budget_costs {
  std::vector<double> cost;                       // By budget in steps; infinity if infeasible.
  std::vector<budget_costs> parts{};              // Parts of series and parallel.
  std::vector<std::vector<std::size_t>> spent{};  // Series: the part's own, by part and budget.

  budget_costs(const latency_grid& grid, const request_graph& g, double step_ms, std::size_t n)
      : cost(n + 1, 0.0) {
    constexpr double never = std::numeric_limits<double>::infinity();
    if (g.what() == request_graph::kind::model) {
      const std::size_t m = g.model().index();
      expects(m < grid.models(), "request_graph: unknown model");
      const std::size_t whole = grid.sizes() - 1;
      double best = never;  // Device time for one request.
      std::uint32_t b = 1;
      for (std::size_t t = 0; t <= n; ++t) {
        // A request waits for a running batch and then for its own: 2 L(b) must fit.
        for (; b <= grid.max_batch(m); ++b) {
          const double l = grid.latency(m, whole, b);
          if (2 * l > step_ms * static_cast<double>(t) * (1 + 1e-9)) break;
          best = std::min(best, l * 1e-3 / b);
        }
        cost[t] = g.times() * best;
      }
      return;
    }
    const bool series = g.what() == request_graph::kind::series;
    for (const request_graph& p : g.parts()) parts.emplace_back(grid, p, step_ms, n);
    for (const budget_costs& p : parts) {
      if (!series) {
        for (std::size_t t = 0; t <= n; ++t) cost[t] += p.cost[t];
        continue;
      }
      std::vector<double> sum(n + 1, never);
      std::vector<std::size_t> own(n + 1, 0);
      for (std::size_t t = 0; t <= n; ++t) {
        for (std::size_t x = 0; x <= t; ++x) {
          if (!(p.cost[x] + cost[t - x] < sum[t])) continue;
          sum[t] = p.cost[x] + cost[t - x];
          own[t] = x;
        }
      }
      cost = std::move(sum);
      spent.push_back(std::move(own));
    }
  }

  /// Distributes `budget_ms` over the models; a model that occurs twice gets the smaller part.
  void assign(const request_graph& g, double budget_ms, double step_ms,
              std::vector<double>& slos_ms) const {
    if (g.what() == request_graph::kind::model) {
      double& slo = slos_ms[g.model().index()];
      slo = std::min(slo, budget_ms);
      return;
    }
    std::vector<double> budgets(parts.size(), budget_ms);
    if (g.what() == request_graph::kind::series) {
      // The least budget of about that cost; the remainder is shared in proportion.
      auto t = std::min(cost.size() - 1,
                        static_cast<std::size_t>(std::floor(budget_ms / step_ms * (1 + 1e-9))));
      const double most = cost[t] * (1 + budget_slack);
      while (t > 0 && cost[t - 1] <= most) --t;
      const double scale = t > 0 ? budget_ms / static_cast<double>(t) : 0;
      for (std::size_t i = parts.size(); i-- > 0;) {
        const std::size_t own = spent[i][t];
        budgets[i] = scale * static_cast<double>(own);
        t -= own;
      }
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].assign(g.parts()[i], budgets[i], step_ms, slos_ms);
    }
  }
};

}  // namespace detail

/// Requirements on the grid's models: SLO (infinity if unused) and rate.
struct stage_demand {
  std::vector<double> slos_ms;
  std::vector<double> rates_rps;
};

/// Splits the applications' SLOs over their stages so as to need the fewest devices, to within 0.5
/// %, if each model has its largest throughput on a whole device within its part of the SLO
/// (batches with 2 L(b) ≤ part). Parts in parallel get the same; parts in series share by dynamic
/// programming over `steps` steps of the SLO, exact on that grid. A model of several stages or
/// applications gets the smallest of its SLOs and the sum of its rates. Source: Nexus, section 6.2
/// (query analysis).
/// @param steps Parts into which an SLO is cut; at least 1.
/// @throws config_error If a value is out of range, or an SLO is too small for any split.
/// Complexity: O(models · steps²).
[[nodiscard]] inline stage_demand split_slos(const latency_grid& grid,
                                             const std::vector<application>& applications,
                                             std::uint32_t steps = 400) {
  expects(steps >= 1, "split_slos: steps must be at least 1");
  stage_demand d{
      .slos_ms = std::vector<double>(grid.models(), std::numeric_limits<double>::infinity()),
      .rates_rps = std::vector<double>(grid.models(), 0.0)};
  for (const application& a : applications) {
    expects(a.slo_ms > 0 && std::isfinite(a.slo_ms), "application: slo_ms must be above 0");
    expects(a.rate_rps >= 0 && std::isfinite(a.rate_rps),
            "application: rate_rps must be at least 0");
    const double step = a.slo_ms / steps;
    const detail::budget_costs costs{grid, a.graph, step, steps};
    if (std::isinf(costs.cost.back())) {
      throw config_error{fmt::format(
          "application: an SLO of {} ms is too small: each model needs twice its latency",
          a.slo_ms)};
    }
    costs.assign(a.graph, a.slo_ms, step, d.slos_ms);
    a.graph.for_each_model(
        [&](model_id m, double times) { d.rates_rps[m.index()] += a.rate_rps * times; });
  }
  return d;
}

}  // namespace cohort::packing
