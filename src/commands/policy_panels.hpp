// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of the report that compare policies: over rates, over time, and with predictions.
#pragma once

#include "commands.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace cohort::commands {

/// The names of the page's runs, each once; a name has the same colour in all charts.
class run_colors {
 public:
  [[nodiscard]] std::size_t of(const std::string& name);

 private:
  std::vector<std::string> names_;
};

/// Splits NAME=FILE, or any two texts at "="; `expected` is used in the error.
[[nodiscard]] std::pair<std::string, std::string> split_named(const char* option,
                                                              const std::string& argument,
                                                              const char* expected);

/// The page's first line, and the part below it. Both empty if there are no runs.
struct sweep_part {
  std::string headline;
  std::string body;
};
[[nodiscard]] sweep_part sweep_panel(const sweep_options& o, run_colors& colors);

/// Empty if there are no runs.
[[nodiscard]] std::string course_panel(const course_options& o, run_colors& colors);

}  // namespace cohort::commands
