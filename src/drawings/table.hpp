// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text tables with aligned columns, and formatted numbers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::drawings {

/// Columns as wide as their widest cell, two spaces apart; the first is aligned left, the others
/// right. Widths count characters, not bytes.
class table {
 public:
  explicit table(std::vector<std::string> header) { add(std::move(header)); }

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Header, a rule, rows: one line each.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// 12345678 as "12 345 678".
[[nodiscard]] std::string grouped(std::uint64_t n);
/// "1 device", "8 devices".
[[nodiscard]] std::string counted(std::uint64_t n, const char* what);
/// A number with `digits` after the point, without trailing zeros; "never" if it is infinite.
[[nodiscard]] std::string decimal(double x, int digits);
/// 0.0123 as "1.23 %".
[[nodiscard]] std::string percent(double share);
/// A number with exactly `digits` after the point; "never" if it is infinite.
[[nodiscard]] std::string fixed(double x, int digits);

}  // namespace cohort::drawings
