// SPDX-License-Identifier: Apache-2.0
/// @file
/// An assignment of models to sub-clusters while it is changed: sums, caps and their price.
#pragma once

#include <cohort/packing/subclusters/subcluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::packing::detail {

/// Rates and memories relative to their averages, so that both are near 1. The energy of an
/// assignment is the sum of squared deviations plus a steep penalty for exceeding caps. The caller
/// keeps the problem alive.
struct subcluster_state {
  struct cluster {
    double rate = 0;     // Deviation from the average, as a part of it.
    double memory = 0;   // Likewise.
    double dynamic = 0;  // MB, of the largest.
    std::vector<std::uint32_t> members{};
  };

  /// @throws config_error If the problem is out of range.
  explicit subcluster_state(const subcluster_problem& p);

  /// Starts from an assignment.
  void load(const subcluster_assignment& a);
  /// Moves a model to another sub-cluster; the caller updates the sums.
  void take(std::uint32_t model, std::uint32_t to);
  /// The largest dynamic memory of a sub-cluster without one of its models.
  double dynamic_without(std::uint32_t j, std::uint32_t model) const noexcept;
  double energy(double rate, double memory, double dynamic) const noexcept;
  /// Change of the total move cost by this move.
  double cost_change(std::uint32_t model, std::uint32_t to) const noexcept;

  const subcluster_problem* problem_;
  std::vector<double> rate_;    // Rate of each model, relative to the average.
  std::vector<double> memory_;  // Likewise.
  double rate_cap_ = 0;         // Cap on a deviation.
  double memory_cap_ = 0;       // Likewise.
  double average_rate_;
  double average_memory_;
  double weight_ = 1;  // Of memory against rate, both as parts of their averages.
  std::vector<cluster> clusters_;
  std::vector<std::uint32_t> where_;     // Sub-cluster of each model.
  std::vector<std::uint32_t> position_;  // Index of each model in its sub-cluster.
  double cost_ = 0;
  double energy_ = 0;
};

inline subcluster_state::subcluster_state(const subcluster_problem& p)
    : problem_{&p},
      average_rate_{p.count > 0 ? p.average_rate() : 0},
      average_memory_{p.count > 0 ? p.average_memory() : 0} {
  check_problem(p);
  const double rate = average_rate_ > 0 ? average_rate_ : 1;
  const double memory = average_memory_ > 0 ? average_memory_ : 1;
  weight_ = average_rate_ > 0 ? p.effective_weight() * memory / rate : 1;
  for (const subcluster_model& m : p.models) {
    rate_.push_back(m.rate_rps / rate);
    memory_.push_back(m.static_mb / memory);
  }
  rate_cap_ = p.rate_cap_rps / rate;
  memory_cap_ = p.memory_mb;
  average_rate_ = rate;
  average_memory_ = memory;
}

inline void subcluster_state::load(const subcluster_assignment& a) {
  clusters_.assign(problem_->count, {.rate = -1, .memory = -1});
  if (problem_->average_rate() <= 0) {
    for (cluster& c : clusters_) c.rate = 0;
  }
  if (problem_->average_memory() <= 0) {
    for (cluster& c : clusters_) c.memory = 0;
  }
  where_ = a;
  position_.assign(a.size(), 0);
  cost_ = 0;
  for (std::uint32_t i = 0; i < a.size(); ++i) {
    cluster& c = clusters_[a[i]];
    c.rate += rate_[i];
    c.memory += memory_[i];
    c.dynamic = std::max(c.dynamic, problem_->models[i].dynamic_mb);
    position_[i] = static_cast<std::uint32_t>(c.members.size());
    c.members.push_back(i);
    if (!problem_->current.empty() && problem_->current[i] != a[i]) {
      cost_ += problem_->models[i].move_cost;
    }
  }
  energy_ = 0;
  for (const cluster& c : clusters_) energy_ += energy(c.rate, c.memory, c.dynamic);
}

/// Squared deviations, and a steep penalty for exceeding caps.
inline double subcluster_state::energy(double rate, double memory, double dynamic) const noexcept {
  constexpr double price = 100;
  double e = rate * rate + weight_ * weight_ * memory * memory;
  if (const double over = rate + 1 - rate_cap_; over > 1e-9) e += price * over;
  const double need = (memory + 1) * average_memory_ + dynamic;
  if (const double over = need / memory_cap_ - 1; over > 1e-9) e += price * over;
  return e;
}

inline double subcluster_state::dynamic_without(std::uint32_t j,
                                                std::uint32_t model) const noexcept {
  const cluster& c = clusters_[j];
  if (problem_->models[model].dynamic_mb < c.dynamic) return c.dynamic;
  double most = 0;
  for (const std::uint32_t i : c.members) {
    if (i != model) most = std::max(most, problem_->models[i].dynamic_mb);
  }
  return most;
}

inline double subcluster_state::cost_change(std::uint32_t model, std::uint32_t to) const noexcept {
  if (problem_->current.empty()) return 0;
  const std::uint32_t home = problem_->current[model];
  return problem_->models[model].move_cost *
         (static_cast<int>(to != home) - static_cast<int>(where_[model] != home));
}

inline void subcluster_state::take(std::uint32_t model, std::uint32_t to) {
  cluster& from = clusters_[where_[model]];
  const std::uint32_t last = from.members.back();
  from.members[position_[model]] = last;
  position_[last] = position_[model];
  from.members.pop_back();
  position_[model] = static_cast<std::uint32_t>(clusters_[to].members.size());
  clusters_[to].members.push_back(model);
  cost_ += cost_change(model, to);
  where_[model] = to;
}

}  // namespace cohort::packing::detail
