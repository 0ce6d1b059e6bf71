// SPDX-License-Identifier: Apache-2.0
/// @file
/// An anytime search for even assignments of models to sub-clusters.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/subcluster.hpp>

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
/// time. The energy annealed is the sum of squares of the relative deviations, which a swap changes
/// in O(1); the best assignment is chosen by the true objective.
/// The caller keeps the problem alive. Thread safety: none. Memory: O(models + sub-clusters).
class subcluster_search {
 public:
  /// Starts from `current` if there is one, else from a greedy assignment.
  /// @throws config_error If the problem is out of range.
  explicit subcluster_search(const subcluster_problem& p, std::uint64_t seed = 1);

  /// Tries `steps` random changes. `from` and `to`, 0 to 1, are the parts of the whole search that
  /// are over before and after: they set the temperature. O(steps · sub-clusters) at worst; a step
  /// that changes nothing is O(1).
  void run(std::uint64_t steps, double from, double to);
  /// Puts the search back to the best assignment known, for another descent from it.
  void restart();

  /// Whether an assignment that keeps all caps was found.
  [[nodiscard]] bool found() const noexcept { return std::isfinite(best_objective_); }
  [[nodiscard]] const subcluster_assignment& best() const noexcept { return best_; }
  /// Infinity until one was found.
  [[nodiscard]] double best_objective() const noexcept { return best_objective_; }

 private:
  struct cluster {
    double rate = 0;     // Deviation from the average, as a part of it.
    double memory = 0;   // Likewise.
    double dynamic = 0;  // MB, of the largest.
    std::vector<std::uint32_t> members{};
  };

  void start_greedy();
  void load(const subcluster_assignment& a);
  void take(std::uint32_t model, std::uint32_t to);
  double dynamic_without(std::uint32_t j, std::uint32_t model) const noexcept;
  double energy(double rate, double memory, double dynamic) const noexcept;
  double cost_change(std::uint32_t model, std::uint32_t to) const noexcept;
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

  const subcluster_problem* problem_;
  std::vector<double> rate_;    // Of each model, as a part of the average.
  std::vector<double> memory_;  // Likewise.
  double rate_cap_ = 0;         // Of a deviation.
  double memory_cap_ = 0;       // Likewise.
  double average_rate_;
  double average_memory_;
  double weight_ = 1;  // Of memory against rate, both as parts of their averages.
  std::uint64_t state_;
  std::vector<cluster> clusters_;
  std::vector<std::uint32_t> where_;     // Sub-cluster of each model.
  std::vector<std::uint32_t> position_;  // Of each model among its sub-cluster's members.
  double cost_ = 0;
  double temperature_ = 1e-3;
  double energy_ = 0;
  double best_energy_ = std::numeric_limits<double>::infinity();
  double best_objective_ = std::numeric_limits<double>::infinity();
  subcluster_assignment best_;
};

/// Runs a search until `progress()`, a part of 1, reaches 1 or nothing is left to gain. The first
/// half of the time cools once; the rest descends again from the best, ever colder.
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
    : problem_{&p},
      average_rate_{p.count > 0 ? p.average_rate() : 0},
      average_memory_{p.count > 0 ? p.average_memory() : 0},
      state_{seed} {
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
  // Each model, the largest first, goes where the sums of rates and memories so far stay evenest.
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

inline void subcluster_search::load(const subcluster_assignment& a) {
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

inline void subcluster_search::restart() {
  if (found()) load(best_);
}

/// Squared deviations, and a steep price for what is above a cap.
inline double subcluster_search::energy(double rate, double memory, double dynamic) const noexcept {
  constexpr double price = 100;
  double e = rate * rate + weight_ * weight_ * memory * memory;
  if (const double over = rate + 1 - rate_cap_; over > 1e-9) e += price * over;
  const double need = (memory + 1) * average_memory_ + dynamic;
  if (const double over = need / memory_cap_ - 1; over > 1e-9) e += price * over;
  return e;
}

inline double subcluster_search::dynamic_without(std::uint32_t j,
                                                 std::uint32_t model) const noexcept {
  const cluster& c = clusters_[j];
  if (problem_->models[model].dynamic_mb < c.dynamic) return c.dynamic;
  double most = 0;
  for (const std::uint32_t i : c.members) {
    if (i != model) most = std::max(most, problem_->models[i].dynamic_mb);
  }
  return most;
}

inline double subcluster_search::cost_change(std::uint32_t model, std::uint32_t to) const noexcept {
  if (problem_->current.empty()) return 0;
  const std::uint32_t home = problem_->current[model];
  return problem_->models[model].move_cost *
         (static_cast<int>(to != home) - static_cast<int>(where_[model] != home));
}

inline bool subcluster_search::accept(double change, double temperature) noexcept {
  return change <= 0 || uniform() < std::exp(-change / temperature);
}

inline void subcluster_search::take(std::uint32_t model, std::uint32_t to) {
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

inline void subcluster_search::try_move(double temperature) {
  const std::uint32_t i = below(where_.size());
  std::uint32_t to = below(problem_->count);
  // Under a budget, going home gives moves back.
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
  // First without caps, which only make it worse: most swaps end here.
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
  // The objective is at least the root of the mean square: what has far more energy cannot be best.
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
  // From swaps of whole models to those that no longer matter, as parts of the averages.
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
