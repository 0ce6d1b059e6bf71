// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that tests read and write, in the working directory.
#pragma once

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace cohort::test {

inline std::string slurp(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

inline void spill(const std::string& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

/// Name of a scratch file of this process, in the working directory.
inline std::string scratch(const std::string& name) {
  return "scratch." + std::to_string(getpid()) + "." + name;
}

}  // namespace cohort::test
