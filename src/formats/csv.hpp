// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strict reading of CSV files with a header row.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

/// Reads the named columns of a CSV text row by row: RFC 4180 quoting, LF or CRLF, a byte order
/// mark skipped, spaces around plain fields dropped, blank lines ignored, other columns ignored.
/// Memory: one row.
class csv_reader {
 public:
  /// @param file Name for errors.  @param text Must outlive the reader.
  /// @param optional Columns that may be missing, numbered after `columns`.
  /// @throws input_error If the text is not UTF-8, has no header, or lacks or repeats a column.
  csv_reader(std::string file, std::string_view text,
             std::initializer_list<std::string_view> columns,
             std::initializer_list<std::string_view> optional = {});

  /// Whether the text has the column; always true for required ones.
  [[nodiscard]] bool has(std::size_t index) const noexcept { return positions_[index] != absent; }

  /// Advances to the next row. @returns Whether there is one.
  /// @throws input_error If a row has a different number of fields from the header, or a quote is
  /// not closed.
  bool next();

  /// The field of the current row in the column with this index in the constructor; the column must
  /// exist.
  [[nodiscard]] const std::string& field(std::size_t index) const noexcept {
    return fields_[positions_[index]];
  }
  /// Line of the current row, from 1.
  [[nodiscard]] std::size_t line() const noexcept { return line_; }
  /// "FILE: line 3, time_ms": the place of that field.
  [[nodiscard]] std::string place(std::size_t index) const;

 private:
  static constexpr std::size_t absent = static_cast<std::size_t>(-1);

  bool read_row();
  std::string read_quoted();

  std::string file_;
  std::string_view rest_;
  std::vector<std::string> names_;
  std::vector<std::size_t> positions_;
  std::vector<std::string> fields_;
  std::size_t header_fields_ = 0;
  std::size_t line_ = 0;       // Line of the current row.
  std::size_t next_line_ = 1;  // Line of the next row; quoted fields may span lines.
};

}  // namespace cohort::formats
