// SPDX-License-Identifier: Apache-2.0
/// @file
/// Builds programs for COIN-OR's CBC, row by row and column by column.
#pragma once

#include <Cbc_C_Interface.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::packing {

/// A matrix in columns, as required by the solver.
class cbc_program {
 public:
  int add_row(double low, double high) {
    row_low_.push_back(low);
    row_high_.push_back(high);
    return static_cast<int>(row_low_.size()) - 1;
  }
  int add_column(double low, double high, double cost) {
    low_.push_back(low);
    high_.push_back(high);
    cost_.push_back(cost);
    cells_.emplace_back();
    return static_cast<int>(low_.size()) - 1;
  }
  void set(int row, int column, double value) {
    if (value != 0) cells_[static_cast<std::size_t>(column)].emplace_back(row, value);
  }
  /// Passes the program to the solver.
  void load(Cbc_Model* model) const {
    std::vector<CoinBigIndex> starts;
    std::vector<int> rows;
    std::vector<double> values;
    for (const auto& column : cells_) {
      starts.push_back(static_cast<CoinBigIndex>(rows.size()));
      for (const auto& [row, value] : column) {
        rows.push_back(row);
        values.push_back(value);
      }
    }
    starts.push_back(static_cast<CoinBigIndex>(rows.size()));
    Cbc_loadProblem(model, static_cast<int>(low_.size()), static_cast<int>(row_low_.size()),
                    starts.data(), rows.data(), values.data(), low_.data(), high_.data(),
                    cost_.data(), row_low_.data(), row_high_.data());
  }

 private:
  std::vector<double> row_low_;
  std::vector<double> row_high_;
  std::vector<double> low_;
  std::vector<double> high_;
  std::vector<double> cost_;
  std::vector<std::vector<std::pair<int, double>>> cells_;
};

}  // namespace cohort::packing
