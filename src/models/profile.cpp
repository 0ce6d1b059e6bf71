// SPDX-License-Identifier: Apache-2.0
#include "profile.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace cohort::models {
std::vector<latency_point> read_profile(const std::string& dir, const std::string& model) {
  const std::string path = dir + "/latency.csv";
  std::ifstream file{path};
  if (!file) throw config_error{fmt::format("{}: cannot be read", path)};
  std::string line;
  std::getline(file, line);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::array<std::ptrdiff_t, 4> column{};
  constexpr std::array<const char*, 4> names{"model", "batch", "partition_pct", "latency_ms"};
  const auto split = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream in{text};
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    return cells;
  };
  const std::vector<std::string> header = split(line);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto at = std::ranges::find(header, names[i]);
    if (at == header.end())
      throw config_error{fmt::format("{}:1: column {} is missing", path, names[i])};
    column[i] = at - header.begin();
  }
  std::vector<latency_point> points;
  for (int number = 2; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::vector<std::string> cells = split(line);
    const auto cell = [&](std::size_t i) -> const std::string& {
      const auto at = static_cast<std::size_t>(column[i]);
      if (at >= cells.size())
        throw config_error{fmt::format("{}:{}: too few columns", path, number)};
      return cells[at];
    };
    if (cell(0) != model || cell(2) != "100") continue;
    char* end = nullptr;
    const long batch = std::strtol(cell(1).c_str(), &end, 10);
    if (*end != '\0' || batch < 1 || batch > 1 << 20) {
      throw config_error{fmt::format("{}:{}: batch {} is not allowed: expected 1 to 1048576", path,
                                     number, cell(1))};
    }
    const double ms = std::strtod(cell(3).c_str(), &end);
    if (cell(3).empty() || *end != '\0' || !std::isfinite(ms) || ms <= 0) {
      throw config_error{fmt::format("{}:{}: latency_ms {} is not allowed: expected above 0", path,
                                     number, cell(3))};
    }
    points.push_back({static_cast<std::uint32_t>(batch), from_ms(ms)});
  }
  if (points.empty()) throw config_error{fmt::format("{}: no rows of model {}", path, model)};
  return points;
}

}  // namespace cohort::models
