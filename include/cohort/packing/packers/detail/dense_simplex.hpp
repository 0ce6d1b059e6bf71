// SPDX-License-Identifier: Apache-2.0
/// @file
/// Solves small linear programs with few columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

/// max c · x with A x ≤ b, x ≥ 0, where all b ≥ 0. Dense tableau, primal simplex: for some tens of
/// rows and columns. Thread safety: none.
class dense_simplex {
 public:
  /// @param objective c.
  explicit dense_simplex(std::vector<double> objective) : objective_{std::move(objective)} {}

  /// Adds a row. @param row As long as the objective. @param limit At least 0.
  void add_row(std::span<const double> row, double limit) {
    rows_.emplace_back(row.begin(), row.end());
    rows_.back().push_back(limit);
  }
  /// Solves from scratch. @returns x; the last iterate if it is cut or the program is unbounded.
  [[nodiscard]] std::vector<double> solve(std::uint32_t max_pivots = 2000) const;

 private:
  std::vector<double> objective_;
  std::vector<std::vector<double>> rows_;  // The limit last.
};

inline std::vector<double> dense_simplex::solve(std::uint32_t max_pivots) const {
  const std::size_t n = objective_.size();
  std::vector<std::vector<double>> table = rows_;
  std::vector<double> gain = objective_;
  std::vector<std::size_t> basic(table.size());  // By row: its variable; slacks from n on.
  std::vector<std::size_t> outside(n);           // By column.
  for (std::size_t i = 0; i < basic.size(); ++i) {
    basic[i] = n + i;
    // Different small values instead of zeros avoid degenerate steps.
    table[i][n] += 1e-10 * static_cast<double>(i + 1);
  }
  for (std::size_t k = 0; k < n; ++k) outside[k] = k;
  for (std::uint32_t step = 0; step < max_pivots; ++step) {
    std::size_t in = 0;
    for (std::size_t k = 1; k < n; ++k) {
      if (gain[k] > gain[in]) in = k;
    }
    if (gain[in] <= 1e-12) break;
    std::size_t out = table.size();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i][in] <= 1e-12 || table[i][n] / table[i][in] >= least) continue;
      least = table[i][n] / table[i][in];
      out = i;
    }
    if (out == table.size()) break;
    const double p = table[out][in];
    table[out][in] = 1;
    for (double& x : table[out]) x /= p;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const double times = table[i][in];
      if (i == out || times == 0) continue;
      table[i][in] = 0;
      for (std::size_t k = 0; k <= n; ++k) table[i][k] -= times * table[out][k];
    }
    const double times = gain[in];
    gain[in] = 0;
    for (std::size_t k = 0; k < n; ++k) gain[k] -= times * table[out][k];
    std::swap(basic[out], outside[in]);
  }
  std::vector<double> x(n, 0.0);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (basic[i] < n) x[basic[i]] = table[i][n];
  }
  return x;
}

}  // namespace cohort::packing::detail
