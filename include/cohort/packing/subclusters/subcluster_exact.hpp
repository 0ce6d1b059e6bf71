// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the best assignment of a few models to sub-clusters, with proof.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/subclusters/subcluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace cohort::packing {

/// The result of a complete search.
struct subcluster_proof {
  bool complete = false;  ///< If true, `best` is optimal or, if empty, none exists.
  subcluster_assignment best{};
  double objective = std::numeric_limits<double>::infinity();
};

/// A lower bound on the objective of any assignment: a single model may already exceed an average
/// sub-cluster's share.
[[nodiscard]] inline double subcluster_bound(const subcluster_problem& p) {
  double rate = 0;
  double memory = 0;
  for (const subcluster_model& m : p.models) {
    rate = std::max(rate, m.rate_rps - p.average_rate());
    memory = std::max(memory, m.static_mb - p.average_memory());
  }
  return rate + p.effective_weight() * memory;
}

/// Depth-first branch and bound, largest models first. Sub-clusters that are still empty are alike
/// unless there is a current assignment. Meant for about a dozen models.
class subcluster_exact {
 public:
  /// @param max_nodes Limit on partial assignments.
  subcluster_exact(const subcluster_problem& p, std::uint64_t max_nodes)
      : problem_{p}, left_{max_nodes}, order_(p.models.size()), a_(p.models.size(), 0) {
    check_problem(p);
    average_rate_ = p.average_rate();
    average_memory_ = p.average_memory();
    weight_ = p.effective_weight();
    std::iota(order_.begin(), order_.end(), 0U);
    detail::sort_stably(order_, std::ranges::greater{}, [this](std::uint32_t i) {
      return problem_.models[i].rate_rps + weight_ * problem_.models[i].static_mb;
    });
    rate_.assign(p.count, 0.0);
    memory_.assign(p.count, 0.0);
    dynamic_.assign(p.count, 0.0);
  }

  [[nodiscard]] subcluster_proof solve() {
    proof_.complete = true;
    descend(0, 0);
    return proof_;
  }

 private:
  void descend(std::size_t depth, double cost) {
    if (left_ == 0) {
      proof_.complete = false;
      return;
    }
    --left_;
    if (depth == order_.size()) {
      const double objective = evaluate(problem_, a_).objective;
      if (objective < proof_.objective) {
        proof_.objective = objective;
        proof_.best = a_;
      }
      return;
    }
    const std::uint32_t i = order_[depth];
    const subcluster_model& m = problem_.models[i];
    bool tried_empty = false;
    for (std::uint32_t j = 0; j < problem_.count; ++j) {
      const bool empty = rate_[j] == 0 && memory_[j] == 0 && dynamic_[j] == 0;
      if (empty && problem_.current.empty() && std::exchange(tried_empty, true)) continue;
      const double paid =
          cost + (problem_.current.empty() || problem_.current[i] == j ? 0 : m.move_cost);
      const double rate = rate_[j];
      const double memory = memory_[j];
      const double dynamic = dynamic_[j];
      rate_[j] += m.rate_rps;
      memory_[j] += m.static_mb;
      dynamic_[j] = std::max(dynamic, m.dynamic_mb);
      a_[i] = j;
      if (detail::within(paid, problem_.max_move_cost) &&
          detail::within(rate_[j], problem_.rate_cap_rps) &&
          detail::within(memory_[j] + dynamic_[j], problem_.memory_mb) &&
          bound() < proof_.objective) {
        descend(depth + 1, paid);
      }
      rate_[j] = rate;
      memory_[j] = memory;
      dynamic_[j] = dynamic;
    }
  }

  /// A sum above the average stays above it.
  [[nodiscard]] double bound() const noexcept {
    const double rate = *std::ranges::max_element(rate_) - average_rate_;
    const double memory = *std::ranges::max_element(memory_) - average_memory_;
    return std::max(0.0, rate) + weight_ * std::max(0.0, memory);
  }

  const subcluster_problem& problem_;
  std::uint64_t left_;
  double average_rate_ = 0;
  double average_memory_ = 0;
  double weight_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<double> rate_;
  std::vector<double> memory_;
  std::vector<double> dynamic_;
  subcluster_assignment a_;
  subcluster_proof proof_;
};

}  // namespace cohort::packing
