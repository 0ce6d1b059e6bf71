// SPDX-License-Identifier: Apache-2.0
/// @file
/// A small linear program: the largest multiple of a demand that mixtures of configurations cover.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::packing::detail {

/// max t with t · demand ≤ Σ x_c · rates_c, Σ of the x of one group ≤ its count, x ≥ 0. Columns are
/// not listed: an oracle finds the best one of a group for given prices. Revised primal simplex
/// with an explicit inverse, for about twenty rows. Its result is the prices of the models: any
/// prices prove a bound, so rounding can weaken a bound, but never falsify it.
class cover_lp {
 public:
  /// Solves for groups with the given counts. `oracle(group, prices)` returns the rates of the
  /// configuration of the group that has the largest price, as a span valid until the next call.
  /// @param demand All above 0.
  template <class Oracle>
  void solve(std::span<const double> counts, std::span<const double> demand, Oracle&& oracle,
             std::uint32_t max_pivots = 400);

  /// Price of each model; at least 0, prices · demand = 1.
  [[nodiscard]] const std::vector<double>& prices() const noexcept { return prices_; }
  /// The multiple covered by the last basis.
  [[nodiscard]] double covered() const noexcept { return covered_; }
  /// A configuration in use: the oracle call that returned it, from 0, and its amount.
  struct use {
    std::size_t call = 0;
    double amount = 0;
  };
  [[nodiscard]] std::vector<use> uses() const {
    std::vector<use> all;
    for (std::size_t r = 0; r < rows_; ++r) {
      if (calls_[r] != no_call && values_[r] > 0) all.push_back({calls_[r], values_[r]});
    }
    return all;
  }

 private:
  [[nodiscard]] double& inverse(std::size_t r, std::size_t c) noexcept {
    return inverse_[r * rows_ + c];
  }
  void pivot(std::size_t row, double cost);

  static constexpr std::size_t no_call = static_cast<std::size_t>(-1);

  std::size_t rows_ = 0;
  std::vector<std::size_t> calls_;  // Of the basic variables.
  std::vector<double> inverse_;
  std::vector<double> values_;   // Of the basic variables.
  std::vector<double> profits_;  // Of the basic variables: 1 for t, else 0.
  std::vector<double> duals_;
  std::vector<double> column_;
  std::vector<double> direction_;
  std::vector<double> prices_;
  double covered_ = 0;
};

/// Brings `column_` (with `direction_` = inverse · column) into the basis in place of `row`.
inline void cover_lp::pivot(std::size_t row, double cost) {
  const double p = direction_[row];
  const double step = values_[row] / p;
  for (std::size_t i = 0; i < rows_; ++i) {
    if (i == row) continue;
    const double times = direction_[i] / p;
    if (times == 0) continue;
    for (std::size_t c = 0; c < rows_; ++c) inverse(i, c) -= times * inverse(row, c);
    values_[i] = std::max(0.0, values_[i] - direction_[i] * step);
  }
  for (std::size_t c = 0; c < rows_; ++c) inverse(row, c) /= p;
  values_[row] = step;
  profits_[row] = cost;
}

template <class Oracle>
void cover_lp::solve(std::span<const double> counts, std::span<const double> demand,
                     Oracle&& oracle, std::uint32_t max_pivots) {
  const std::size_t groups = counts.size();
  const std::size_t models = demand.size();
  constexpr double epsilon = 1e-9;
  rows_ = groups + models;
  calls_.assign(rows_, no_call);
  std::size_t calls = 0;
  inverse_.assign(rows_ * rows_, 0.0);
  values_.assign(rows_, 0.0);
  profits_.assign(rows_, 0.0);
  duals_.assign(rows_, 0.0);
  column_.assign(rows_, 0.0);
  direction_.assign(rows_, 0.0);
  prices_.assign(models, 0.0);
  for (std::size_t r = 0; r < rows_; ++r) inverse(r, r) = 1;
  for (std::size_t g = 0; g < groups; ++g) values_[g] = counts[g];
  // Different small values for zeros avoid degenerate steps. Rows of models are relative to the
  // demand.
  for (std::size_t i = 0; i < models; ++i) {
    values_[groups + i] = 1e-8 * (1 + 0.1 * static_cast<double>(i));
  }
  for (std::uint32_t n = 0; n < max_pivots; ++n) {
    for (std::size_t c = 0; c < rows_; ++c) {
      double y = 0;
      for (std::size_t r = 0; r < rows_; ++r) y += profits_[r] * inverse(r, c);
      duals_[c] = y;
    }
    double sum = 0;  // Negative duals vanish as their slacks enter; prices are never negative.
    double gain = 1;
    for (std::size_t i = 0; i < models; ++i) {
      sum += std::max(0.0, duals_[groups + i]);
      gain -= duals_[groups + i];
    }
    // t first; without it all prices are zero.
    double cost = 1;
    std::size_t call = no_call;
    std::ranges::fill(column_, 0.0);
    for (std::size_t i = 0; i < models; ++i) column_[groups + i] = 1;
    // Slacks.
    for (std::size_t r = 0; r < rows_; ++r) {
      if (-duals_[r] <= gain || -duals_[r] <= epsilon) continue;
      gain = -duals_[r];
      cost = 0;
      std::ranges::fill(column_, 0.0);
      column_[r] = 1;
    }
    if (sum > 0) {
      for (std::size_t i = 0; i < models; ++i) {
        prices_[i] = std::max(0.0, duals_[groups + i]) / demand[i];
      }
      for (std::size_t g = 0; g < groups; ++g) {
        const std::span<const double> rates = oracle(g, std::span<const double>{prices_});
        const std::size_t this_call = calls++;
        double worth = 0;
        for (std::size_t i = 0; i < models; ++i) {
          worth += duals_[groups + i] / demand[i] * rates[i];
        }
        if (worth - duals_[g] <= gain || worth - duals_[g] <= epsilon) continue;
        gain = worth - duals_[g];
        cost = 0;
        call = this_call;
        std::ranges::fill(column_, 0.0);
        column_[g] = 1;
        for (std::size_t i = 0; i < models; ++i) column_[groups + i] = -rates[i] / demand[i];
      }
    }
    if (gain <= epsilon) break;
    std::size_t leaving = rows_;
    double least = 0;
    for (std::size_t r = 0; r < rows_; ++r) {
      double d = 0;
      for (std::size_t c = 0; c < rows_; ++c) d += inverse(r, c) * column_[c];
      direction_[r] = d;
      if (d <= 1e-11) continue;
      const double ratio = values_[r] / d;
      if (leaving == rows_ || ratio < least) {
        leaving = r;
        least = ratio;
      }
    }
    if (leaving == rows_) break;  // Unbounded: impossible, and no price would follow from it.
    pivot(leaving, cost);
    calls_[leaving] = call;
  }
  covered_ = 0;
  double sum = 0;
  for (std::size_t r = 0; r < rows_; ++r) covered_ += profits_[r] * values_[r];
  for (std::size_t c = 0; c < models; ++c) {
    double y = 0;
    for (std::size_t r = 0; r < rows_; ++r) y += profits_[r] * inverse(r, groups + c);
    prices_[c] = std::max(0.0, y) / demand[c];
    sum += std::max(0.0, y);
  }
  for (std::size_t i = 0; i < models; ++i) {
    prices_[i] = sum > 0 ? prices_[i] / sum : 1 / (demand[i] * static_cast<double>(models));
  }
}

}  // namespace cohort::packing::detail
