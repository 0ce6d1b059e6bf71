// SPDX-License-Identifier: Apache-2.0
/// @file
/// Distributes models over sub-clusters: the problem, an assignment's value, and a check of caps.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace cohort::packing {

/// A model's demand. All numbers at least 0.
struct subcluster_model {
  double rate_rps = 0;
  double static_mb = 0;   ///< Weights: every backend of the sub-cluster holds all of them.
  double dynamic_mb = 0;  ///< While running: only the sub-cluster's largest counts.
  double move_cost = 1;   ///< Cost of loading it elsewhere and unloading it here.
};

/// Models, and the sub-clusters to spread them over. Every backend of a sub-cluster holds all its
/// models. Source: Symphony, appendix A.
struct subcluster_problem {
  std::vector<subcluster_model> models{};
  std::uint32_t count = 1;                                     ///< Sub-clusters; at least 1.
  double memory_mb = std::numeric_limits<double>::infinity();  ///< Σ static + max dynamic; above 0.
  double rate_cap_rps = std::numeric_limits<double>::infinity();  ///< Σ rate; above 0.
  /// Requests per second that weigh as much as one megabyte of imbalance; at least 0. Negative:
  /// average rate over average memory, so that both weigh alike.
  double weight = -1;
  std::vector<std::uint32_t> current{};  ///< Sub-cluster of each model now; empty: none.
  double max_move_cost = std::numeric_limits<double>::infinity();  ///< Needs `current`.

  [[nodiscard]] double average_rate() const noexcept {
    double sum = 0;
    for (const subcluster_model& m : models) sum += m.rate_rps;
    return sum / count;
  }
  [[nodiscard]] double average_memory() const noexcept {
    double sum = 0;
    for (const subcluster_model& m : models) sum += m.static_mb;
    return sum / count;
  }
  [[nodiscard]] double effective_weight() const noexcept {
    if (weight >= 0) return weight;
    const double memory = average_memory();
    return memory > 0 ? average_rate() / memory : 0;
  }
};

/// @throws config_error If a number is out of its range, or `current` does not fit the models.
inline void check_problem(const subcluster_problem& p) {
  expects(p.count >= 1, "subcluster_problem: count must be at least 1");
  expects(p.memory_mb > 0, "subcluster_problem: memory_mb must be above 0");
  expects(p.rate_cap_rps > 0, "subcluster_problem: rate_cap_rps must be above 0");
  expects(!std::isnan(p.weight), "subcluster_problem: weight must be a number");
  expects(!p.models.empty(), "subcluster_problem: models must not be empty");
  for (const subcluster_model& m : p.models) {
    for (const double x : {m.rate_rps, m.static_mb, m.dynamic_mb, m.move_cost}) {
      expects(x >= 0 && std::isfinite(x),
              "subcluster_problem: the numbers of a model must be at least 0 and finite");
    }
  }
  expects(p.current.empty() || p.current.size() == p.models.size(),
          "subcluster_problem: current must name a sub-cluster for each model");
  for (const std::uint32_t c : p.current) {
    expects(c < p.count, "subcluster_problem: current must be below count");
  }
  expects(p.max_move_cost >= 0, "subcluster_problem: max_move_cost must be at least 0");
  expects(std::isinf(p.max_move_cost) || !p.current.empty(),
          "subcluster_problem: max_move_cost needs current");
}

/// The sub-cluster of each model.
using subcluster_assignment = std::vector<std::uint32_t>;

/// The value of an assignment.
struct subcluster_value {
  double objective = 0;         ///< max |rate − average| + weight · max |static memory − average|.
  double rate_imbalance = 0;    ///< (max − min) / mean; 0 if the mean is 0.
  double memory_imbalance = 0;  ///< The same for the static memory.
  double move_cost = 0;         ///< Cost of the moves from `current`.
};

namespace detail {

/// Rates and memories of all sub-clusters under an assignment.
struct subcluster_sums {
  std::vector<double> rate;
  std::vector<double> memory;
  std::vector<double> dynamic;

  subcluster_sums(const subcluster_problem& p, std::span<const std::uint32_t> a)
      : rate(p.count, 0.0), memory(p.count, 0.0), dynamic(p.count, 0.0) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      rate[a[i]] += p.models[i].rate_rps;
      memory[a[i]] += p.models[i].static_mb;
      dynamic[a[i]] = std::max(dynamic[a[i]], p.models[i].dynamic_mb);
    }
  }
};

/// Caps are met up to rounding.
[[nodiscard]] inline bool within(double x, double cap) noexcept { return x <= cap * (1 + 1e-9); }

}  // namespace detail

[[nodiscard]] inline subcluster_value evaluate(const subcluster_problem& p,
                                               std::span<const std::uint32_t> assignment) {
  const detail::subcluster_sums sums{p, assignment};
  const auto off = [](const std::vector<double>& x, double average) {
    double most = 0;
    for (const double v : x) most = std::max(most, std::abs(v - average));
    return most;
  };
  const auto imbalance = [](const std::vector<double>& x, double average) {
    const auto [low, high] = std::ranges::minmax(x);
    return average > 0 ? (high - low) / average : 0;
  };
  subcluster_value v{.objective = off(sums.rate, p.average_rate()) +
                                  p.effective_weight() * off(sums.memory, p.average_memory()),
                     .rate_imbalance = imbalance(sums.rate, p.average_rate()),
                     .memory_imbalance = imbalance(sums.memory, p.average_memory())};
  for (std::size_t i = 0; i < p.current.size(); ++i) {
    if (assignment[i] != p.current[i]) v.move_cost += p.models[i].move_cost;
  }
  return v;
}

/// Every cap that the assignment breaks, one sentence each; empty if it keeps all.
[[nodiscard]] inline std::vector<std::string> verify(const subcluster_problem& p,
                                                     std::span<const std::uint32_t> assignment) {
  std::vector<std::string> broken;
  if (assignment.size() != p.models.size() ||
      std::ranges::any_of(assignment, [&p](std::uint32_t c) { return c >= p.count; })) {
    broken.emplace_back("every model must be assigned to one of the sub-clusters");
    return broken;
  }
  const detail::subcluster_sums sums{p, assignment};
  for (std::uint32_t j = 0; j < p.count; ++j) {
    if (!detail::within(sums.rate[j], p.rate_cap_rps)) {
      broken.push_back(fmt::format("sub-cluster {}: {} requests a second, more than {}", j,
                                   sums.rate[j], p.rate_cap_rps));
    }
    if (const double need = sums.memory[j] + sums.dynamic[j]; !detail::within(need, p.memory_mb)) {
      broken.push_back(
          fmt::format("sub-cluster {}: needs {} MB, more than {}", j, need, p.memory_mb));
    }
  }
  if (const double cost = evaluate(p, assignment).move_cost;
      !detail::within(cost, p.max_move_cost)) {
    broken.push_back(fmt::format("the moves cost {}, more than {}", cost, p.max_move_cost));
  }
  return broken;
}

/// A reason, found without search, why no assignment can keep the caps; empty if there is none.
/// @param name Names the model of an index.
template <class Name>
[[nodiscard]] std::string why_impossible(const subcluster_problem& p, const Name& name) {
  double rate = 0;
  double memory = 0;
  for (std::size_t i = 0; i < p.models.size(); ++i) {
    const subcluster_model& m = p.models[i];
    rate += m.rate_rps;
    memory += m.static_mb;
    if (!detail::within(m.rate_rps, p.rate_cap_rps)) {
      return fmt::format("model {}: {} requests a second, more than a sub-cluster's {}", name(i),
                         m.rate_rps, p.rate_cap_rps);
    }
    if (const double need = m.static_mb + m.dynamic_mb; !detail::within(need, p.memory_mb)) {
      return fmt::format("model {}: needs {} MB, more than a backend's {}", name(i), need,
                         p.memory_mb);
    }
  }
  if (!detail::within(rate, p.rate_cap_rps * p.count)) {
    return fmt::format("all models: {} requests a second, more than {}", rate,
                       p.rate_cap_rps * p.count);
  }
  if (!detail::within(memory, p.memory_mb * p.count)) {
    return fmt::format("all models: need {} MB, more than {}", memory, p.memory_mb * p.count);
  }
  return {};
}
[[nodiscard]] inline std::string why_impossible(const subcluster_problem& p) {
  return why_impossible(p, [](std::size_t i) { return i; });
}

}  // namespace cohort::packing
