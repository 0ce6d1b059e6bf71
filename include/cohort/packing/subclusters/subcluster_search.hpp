// SPDX-License-Identifier: Apache-2.0
/// @file
/// An anytime search for even assignments of models to sub-clusters.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/subclusters/detail/subcluster_state.hpp>
#include <cohort/packing/subclusters/subcluster.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace cohort::packing {

/// Greedy, then annealing over moves and swaps, within all caps and the budget of moves. A value
/// without clock or thread: its driver calls `run` until time is up and may read `best` at any
/// time. The annealed energy is the sum of squares of the relative deviations, which a swap changes
/// in O(1); the best assignment is chosen by the true objective. The caller keeps the problem
/// alive. Thread safety: none. Memory: O(models + sub-clusters).
class subcluster_search : detail::subcluster_state {
 public:
  /// Starts from `current` if there is one, else from a greedy assignment.
  /// @throws config_error If the problem is out of range.
  explicit subcluster_search(const subcluster_problem& p, std::uint64_t seed = 1);

  /// Tries `steps` random changes. `from` and `to`, 0 to 1, are the completed fractions of the
  /// whole search before and after; they set the temperature. O(steps · sub-clusters) at worst; a
  /// step that changes nothing is O(1).
  void run(std::uint64_t steps, double from, double to);
  /// Resets the search to the best known assignment, for another descent from it.
  void restart();

  /// Whether an assignment that keeps all caps was found.
  [[nodiscard]] bool found() const noexcept { return std::isfinite(best_objective_); }
  [[nodiscard]] const subcluster_assignment& best() const noexcept { return best_; }
  /// Infinity until one was found.
  [[nodiscard]] double best_objective() const noexcept { return best_objective_; }

 private:
  void start_greedy();
  void try_move(double temperature);
  void try_swap(double temperature);
  bool accept(double change, double temperature) noexcept;
  void keep_if_best();

  std::uint64_t next() noexcept {  // SplitMix64.
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  std::uint32_t below(std::size_t n) noexcept {
    return static_cast<std::uint32_t>(((next() >> 32U) * n) >> 32U);
  }
  double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

  std::uint64_t state_;
  double temperature_ = 1e-3;
  double best_energy_ = std::numeric_limits<double>::infinity();
  double best_objective_ = std::numeric_limits<double>::infinity();
  subcluster_assignment best_;
};

/// Runs a search until `progress()`, a fraction, reaches 1 or no gain is left. The first half of
/// the time cools once; the rest descends again from the best, at ever lower temperatures.
template <class Progress>
void improve(subcluster_search& search, Progress progress) {
  constexpr std::uint64_t chunk = 2048;
  double before = progress();
  bool again = false;
  while (before < 1 && search.best_objective() > 0) {
    if (before >= 0.7 && !again) {
      search.restart();
      again = true;
    }
    search.run(chunk, before, before);
    before = progress();
  }
}

inline subcluster_search::subcluster_search(const subcluster_problem& p, std::uint64_t seed)
    : subcluster_state{p}, state_{seed} {
  if (!p.current.empty()) {
    load(p.current);
  } else {
    start_greedy();
  }
  keep_if_best();
}

inline void subcluster_search::start_greedy() {
  const std::size_t n = problem_->models.size();
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  detail::sort_stably(order, std::ranges::greater{},
                      [this](std::uint32_t i) { return std::max(rate_[i], weight_ * memory_[i]); });
  // Each model, the largest first, goes where the sums of rates and memories stay most even.
  std::vector<double> rate(problem_->count, 0.0);
  std::vector<double> memory(problem_->count, 0.0);
  std::vector<double> dynamic(problem_->count, 0.0);
  subcluster_assignment a(n);
  for (const std::uint32_t i : order) {
    std::uint32_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t j = 0; j < problem_->count; ++j) {
      const double r = rate[j] + rate_[i];
      const double m = memory[j] + memory_[i];
      const double d = std::max(dynamic[j], problem_->models[i].dynamic_mb);
      double worth = 2 * rate[j] * rate_[i] + rate_[i] * rate_[i] +
                     weight_ * weight_ * (2 * memory[j] * memory_[i] + memory_[i] * memory_[i]);
      if (!detail::within(r, rate_cap_) || !detail::within(m * average_memory_ + d, memory_cap_)) {
        worth += 1e9;
      }
      if (worth < least) {
        least = worth;
        best = j;
      }
    }
    a[i] = best;
    rate[best] += rate_[i];
    memory[best] += memory_[i];
    dynamic[best] = std::max(dynamic[best], problem_->models[i].dynamic_mb);
  }
  load(a);
}

inline void subcluster_search::restart() {
  if (found()) load(best_);
}

inline bool subcluster_search::accept(double change, double temperature) noexcept {
  return change <= 0 || uniform() < std::exp(-change / temperature);
}

inline void subcluster_search::try_move(double temperature) {
  const std::uint32_t i = below(where_.size());
  std::uint32_t to = below(problem_->count);
  // With a budget of moves, returning a model regains some.
  if (!problem_->current.empty() && (next() & 1U) != 0) to = problem_->current[i];
  const std::uint32_t from = where_[i];
  if (to == from || !detail::within(cost_ + cost_change(i, to), problem_->max_move_cost)) return;
  cluster& a = clusters_[from];
  cluster& b = clusters_[to];
  const double da = dynamic_without(from, i);
  const double db = std::max(b.dynamic, problem_->models[i].dynamic_mb);
  const double change = energy(a.rate - rate_[i], a.memory - memory_[i], da) +
                        energy(b.rate + rate_[i], b.memory + memory_[i], db) -
                        energy(a.rate, a.memory, a.dynamic) - energy(b.rate, b.memory, b.dynamic);
  if (!accept(change, temperature)) return;
  take(i, to);
  a.rate -= rate_[i];
  a.memory -= memory_[i];
  b.rate += rate_[i];
  b.memory += memory_[i];
  a.dynamic = da;
  b.dynamic = db;
  energy_ += change;
  keep_if_best();
}

inline void subcluster_search::try_swap(double temperature) {
  const std::uint32_t i = below(where_.size());
  const std::uint32_t k = below(where_.size());
  const std::uint32_t from = where_[i];
  const std::uint32_t to = where_[k];
  if (from == to) return;
  cluster& a = clusters_[from];
  cluster& b = clusters_[to];
  const double rate = rate_[k] - rate_[i];
  const double memory = memory_[k] - memory_[i];
  // First without caps, which can only make it worse: most swaps are rejected here.
  const double squares = 2 * rate * (a.rate - b.rate + rate) +
                         weight_ * weight_ * 2 * memory * (a.memory - b.memory + memory);
  if (squares > 30 * temperature && energy_ < 10) return;
  const double cost = cost_ + cost_change(i, to) + cost_change(k, from);
  if (!detail::within(cost, problem_->max_move_cost)) return;
  const double da = std::max(dynamic_without(from, i), problem_->models[k].dynamic_mb);
  const double db = std::max(dynamic_without(to, k), problem_->models[i].dynamic_mb);
  const double change = energy(a.rate + rate, a.memory + memory, da) +
                        energy(b.rate - rate, b.memory - memory, db) -
                        energy(a.rate, a.memory, a.dynamic) - energy(b.rate, b.memory, b.dynamic);
  if (!accept(change, temperature)) return;
  take(i, to);
  take(k, from);
  a.rate += rate;
  a.memory += memory;
  b.rate -= rate;
  b.memory -= memory;
  a.dynamic = da;
  b.dynamic = db;
  energy_ += change;
  keep_if_best();
}

inline void subcluster_search::keep_if_best() {
  // The objective is at least the root mean square: with far more energy it cannot be the best.
  if (energy_ > 1.5 * best_energy_) return;
  double rate = 0;
  double memory = 0;
  for (const cluster& c : clusters_) {
    rate = std::max(rate, std::abs(c.rate));
    memory = std::max(memory, std::abs(c.memory));
  }
  const double objective = (rate + weight_ * memory) * average_rate_;
  if (!(objective < best_objective_ * (1 - 1e-12))) return;
  for (const cluster& c : clusters_) {
    if (!detail::within(c.rate + 1, rate_cap_) ||
        !detail::within((c.memory + 1) * average_memory_ + c.dynamic, memory_cap_)) {
      return;
    }
  }
  if (!detail::within(cost_, problem_->max_move_cost)) return;
  best_ = where_;
  best_objective_ = objective;
  best_energy_ = std::min(best_energy_, energy_);
}

inline void subcluster_search::run(std::uint64_t steps, double from, double to) {
  if (problem_->count < 2) return;
  // From swaps of whole models down to insignificant ones, relative to the averages.
  const double hot = 1e-3;
  const double cold = 1e-9;
  for (std::uint64_t s = 0; s < steps; ++s) {
    const double part = from + (to - from) * static_cast<double>(s) / static_cast<double>(steps);
    const double temperature = (s & 63U) == 0 ? hot * std::pow(cold / hot, part) : temperature_;
    temperature_ = temperature;
    if ((next() & 15U) == 0) {
      try_move(temperature);
    } else {
      try_swap(temperature);
    }
  }
}

}  // namespace cohort::packing
