// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pages of metrics of real servers, as their documentation and promtool have them.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include <support/scratch_file.hpp>

namespace cohort::test {

/// The names on a page, each of which must have a series.
inline std::set<std::string> metric_names(const std::string& page) {
  std::set<std::string> all;
  static const std::regex type{"# TYPE ([a-z0-9_]+) [a-z]+\n([a-z0-9_]+)"};
  for (auto at = std::sregex_iterator{page.begin(), page.end(), type}; at != std::sregex_iterator{};
       ++at) {
    const std::string name = (*at)[1];
    CAPTURE(name);
    CHECK((*at)[2].str().starts_with(name));
    all.insert(name);
  }
  return all;
}

/// The names that the tables of a page's section list in their first column.
inline std::set<std::string> documented_metrics(const std::string& file,
                                                const std::string& section = "## Metrics") {
  std::ifstream in{file};
  REQUIRE(in);
  std::set<std::string> all;
  bool is_there = false;
  static const std::regex name{"`([a-z0-9_]+)(\\{[a-z_,]+\\})?`"};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) is_there = line == section;
    if (!is_there || !line.starts_with("| `")) continue;
    const std::string first = line.substr(0, line.find(" | "));
    for (auto at = std::sregex_iterator{first.begin(), first.end(), name};
         at != std::sregex_iterator{}; ++at) {
      all.insert((*at)[1]);
    }
  }
  return all;
}

/// Those of `some` that are not among `others`, in one line.
inline std::string missing(const std::set<std::string>& some, const std::set<std::string>& others) {
  std::string all;
  for (const std::string& name : some) {
    if (!others.contains(name)) all += name + ' ';
  }
  return all;
}

inline bool has_promtool() { return std::system("promtool --version >/dev/null 2>&1") == 0; }

/// What `promtool check metrics` says of a page; nothing if it is as Prometheus wants it.
inline std::string promtool_complaints(const std::string& page) {
  const std::string file = scratch("metrics.txt");
  spill(file, page);
  FILE* said = popen(("promtool check metrics <" + file + " 2>&1").c_str(), "r");
  REQUIRE(said != nullptr);
  std::string all;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), said) != nullptr) all += line.data();
  CHECK(pclose(said) == 0);
  std::remove(file.c_str());
  return all;
}

}  // namespace cohort::test
