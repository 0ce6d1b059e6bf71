// SPDX-License-Identifier: Apache-2.0
/// @file
/// A progress bar with rate and remaining time, on standard error and only on a terminal.
#pragma once

#include "commands.hpp"

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace cohort::commands {

/// One bar, redrawn at most ten times a second and erased when destroyed. Thread safety: full.
class progress_bar {
 public:
  /// @param unit The unit of the rate, as in "1.2 M requests/s".
  progress_bar(std::string label, std::string unit);
  ~progress_bar();
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;

  /// @param part Fraction done, 0 to 1.  @param units Number of units done.
  void update(double part, double units);
  void set_label(std::string label);

 private:
  using clock = std::chrono::steady_clock;

  std::mutex mutex_;
  std::string label_;
  std::string unit_;
  bool shown_;
  clock::time_point start_;
  clock::time_point drawn_;
};

}  // namespace cohort::commands
