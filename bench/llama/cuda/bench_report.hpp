// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the GPU programs of this folder print and write.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <string>

namespace cohort::bench {

/// Lines to read and a JSON document, written after each line: what was measured must not be lost
/// with what comes later.
class report {
 public:
  report(std::string path, const std::string& device) : path_{std::move(path)} {
    document_["device"] = device;
    document_["results"] = nlohmann::json::array();
  }
  void line(const std::string& name, double value, const std::string& unit) {
    add(name, value, unit, "", true);
  }
  void bar(const std::string& name, double value, const std::string& unit, const std::string& bar,
           bool met) {
    add(name, value, unit, bar, met);
  }
  /// Something that a later program needs.
  void note(const std::string& name, nlohmann::json value) {
    document_[name] = std::move(value);
    write();
  }

 private:
  void add(const std::string& name, double value, const std::string& unit, const std::string& bar,
           bool met) {
    fmt::print("{:<58} {:>12.4f} {:<10} {}\n", name, value, unit,
               bar.empty() ? "" : fmt::format("bar {}: {}", bar, met ? "met" : "MISSED"));
    std::fflush(stdout);
    nlohmann::json r{{"name", name}, {"value", value}, {"unit", unit}};
    if (!bar.empty()) {
      r["bar"] = bar;
      r["met"] = met;
    }
    document_["results"].push_back(std::move(r));
    write();
  }
  void write() const {
    if (!path_.empty()) std::ofstream{path_} << document_.dump(1) << '\n';
  }

  std::string path_;
  nlohmann::json document_;
};

}  // namespace cohort::bench
