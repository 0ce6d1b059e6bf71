// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <formats/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace cohort::drawings {
using namespace formats;
namespace {

std::size_t width_of(std::string_view s) {
  return static_cast<std::size_t>(std::ranges::count_if(
      s, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// Names come from files: characters that would break the line are escaped.
std::string clean(const std::string& s) {
  const std::string quoted = quote(s);
  return quoted.size() == s.size() + 2 ? s : quoted.substr(1, quoted.size() - 2);
}

}  // namespace

std::string table::text() const {
  std::vector<std::vector<std::string>> rows = rows_;
  std::vector<std::size_t> widths(rows.front().size());
  for (std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = clean(row[i]);
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      const std::string pad(widths[i] - width_of(rows[r][i]), ' ');
      if (i > 0) line += "  ";
      line += i == 0 ? rows[r][i] + pad : pad + rows[r][i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
    if (r == 0) {
      for (std::size_t i = 0; i < widths.size(); ++i) {
        if (i > 0) out += "  ";
        out.append(widths[i], '-');
      }
      out += '\n';
    }
  }
  return out;
}

std::string grouped(std::uint64_t n) {
  std::string digits = fmt::to_string(n);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, 1, ' ');
  }
  return digits;
}

std::string counted(std::uint64_t n, const char* what) {
  return grouped(n) + ' ' + what + (n == 1 ? "" : "s");
}

std::string decimal(double x, int digits) {
  std::string s = fixed(x, digits);
  if (s.find('.') == std::string::npos) return s;
  s.erase(s.find_last_not_of('0') + 1);
  if (s.ends_with('.')) s.pop_back();
  return s;
}

std::string percent(double share) { return fixed(100 * share, 2) + " %"; }

std::string fixed(double x, int digits) {
  return std::isfinite(x) ? fmt::format("{:.{}f}", x, digits) : "never";
}

}  // namespace cohort::drawings
