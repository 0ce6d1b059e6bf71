// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads a set of profile files without depending on the command: for benches and tests.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/profile.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace cohort::bench {

struct profile_files {
  std::vector<packing::model_profile> models;
  packing::interference_model interference;
};

/// Rows of a CSV file with plain fields, the header left out.
inline std::vector<std::vector<std::string>> csv_rows(const std::filesystem::path& file) {
  std::ifstream in{file};
  if (!in) throw std::runtime_error{"cannot read " + file.string()};
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream fields{line};
    rows.emplace_back();
    for (std::string f; std::getline(fields, f, ',');) rows.back().push_back(f);
  }
  return rows;
}

/// Reads latency.csv, slo.csv, util.csv and interference.csv of a folder.
inline profile_files read_profiles(const std::filesystem::path& dir) {
  const auto whole = [](const std::string& s) { return static_cast<std::uint32_t>(std::stoul(s)); };
  std::map<std::string, packing::model_profile> models;
  for (const auto& r : csv_rows(dir / "slo.csv")) {
    models[r[0]].name = r[0];
    models[r[0]].slo_ms = std::stod(r[1]);
    models[r[0]].memory_mb = std::stod(r[2]);
  }
  for (const auto& r : csv_rows(dir / "latency.csv")) {
    models[r[0]].latency.push_back({whole(r[1]), whole(r[2]), std::stod(r[3])});
  }
  for (const auto& r : csv_rows(dir / "util.csv")) {
    models[r[0]].usage.push_back({whole(r[1]), std::stod(r[2]) / 100, std::stod(r[3]) / 100});
  }
  profile_files p;
  for (auto& [name, m] : models) p.models.push_back(std::move(m));
  const auto c = csv_rows(dir / "interference.csv").front();
  p.interference = {.l2_self = std::stod(c[0]),
                    .l2_other = std::stod(c[1]),
                    .memory_self = std::stod(c[2]),
                    .memory_other = std::stod(c[3]),
                    .constant = std::stod(c[4])};
  return p;
}

}  // namespace cohort::bench
