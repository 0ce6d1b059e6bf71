// SPDX-License-Identifier: Apache-2.0
#include "csv.hpp"

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cohort::formats {
namespace {

std::string_view trimmed(std::string_view s) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

}  // namespace

csv_reader::csv_reader(std::string file, std::string_view text,
                       std::initializer_list<std::string_view> columns,
                       std::initializer_list<std::string_view> optional)
    : file_{std::move(file)}, rest_{text}, names_{columns.begin(), columns.end()} {
  names_.insert(names_.end(), optional.begin(), optional.end());
  if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
  if (!is_utf8(rest_)) {
    std::size_t line = 1;
    for (std::string_view s = rest_; utf8_length(s) > 0; s.remove_prefix(utf8_length(s))) {
      if (s.front() == '\n') ++line;
    }
    fail(fmt::format("{}: line {}", file_, line), "this text", "UTF-8");
  }
  if (!read_row()) {
    throw input_error{fmt::format("{}: line 1: missing: expected a header row", file_)};
  }
  header_fields_ = fields_.size();
  for (const std::string& name : names_) {
    const auto found = std::ranges::find(fields_, name);
    if (found == fields_.end() && positions_.size() >= columns.size()) {
      positions_.push_back(absent);
      continue;
    }
    if (found == fields_.end()) {
      throw input_error{
          fmt::format("{}: line {}, {}: missing: expected a column", file_, line_, name)};
    }
    if (std::find(found + 1, fields_.end(), name) != fields_.end()) {
      throw input_error{fmt::format("{}: line {}, {}: repeated: expected one column of that name",
                                    file_, line_, name)};
    }
    positions_.push_back(static_cast<std::size_t>(found - fields_.begin()));
  }
}

bool csv_reader::next() {
  if (!read_row()) return false;
  if (fields_.size() != header_fields_) {
    fail(fmt::format("{}: line {}", file_, line_), fmt::format("a row of {}", fields_.size()),
         fmt::format("{} fields, as in the header", header_fields_));
  }
  return true;
}

std::string csv_reader::place(std::size_t index) const {
  return fmt::format("{}: line {}, {}", file_, line_, names_[index]);
}

bool csv_reader::read_row() {
  for (;;) {
    if (rest_.empty()) return false;
    const std::string_view line = rest_.substr(0, rest_.find('\n'));
    if (!trimmed(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line).empty()) break;
    rest_.remove_prefix(std::min(rest_.size(), line.size() + 1));
    ++next_line_;
  }
  line_ = next_line_;
  fields_.clear();
  for (;;) {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) {
      rest_.remove_prefix(1);
    }
    const bool quoted = rest_.starts_with('"');
    std::string value = quoted ? read_quoted() : std::string{};
    const std::string_view plain = rest_.substr(0, rest_.find_first_of(",\n"));
    rest_.remove_prefix(plain.size());
    std::string_view after = plain;
    if (after.ends_with('\r') && (rest_.empty() || rest_.front() == '\n')) after.remove_suffix(1);
    after = trimmed(after);
    if (quoted && !after.empty()) {
      fail(fmt::format("{}: line {}", file_, line_), quote_short(after),
           "a comma after a quoted field");
    }
    fields_.push_back(quoted ? std::move(value) : std::string{after});
    if (rest_.empty()) return true;
    const bool more = rest_.front() == ',';
    rest_.remove_prefix(1);
    if (!more) {
      ++next_line_;
      return true;
    }
  }
}

std::string csv_reader::read_quoted() {
  std::string value;
  rest_.remove_prefix(1);
  for (;;) {
    const std::size_t end = rest_.find('"');
    if (end == std::string_view::npos) {
      throw input_error{
          fmt::format("{}: line {}: a quote is not closed: expected \"", file_, line_)};
    }
    next_line_ += static_cast<std::size_t>(std::ranges::count(rest_.substr(0, end), '\n'));
    value += rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (!rest_.starts_with('"')) return value;
    value += '"';
    rest_.remove_prefix(1);
  }
}

}  // namespace cohort::formats
