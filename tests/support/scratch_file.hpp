// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that tests read and write, in the working directory.
#pragma once

#include <unistd.h>

#include <cstdio>
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

/// A scratch file of its own, which goes with this.
struct scratch_file {
  scratch_file(const std::string& name, const std::string& text)
      : path{scratch(std::to_string(++made) + "." + name)} {
    write(text);
  }
  ~scratch_file() { std::remove(path.c_str()); }
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  void write(const std::string& text) const { spill(path, text); }
  const std::string path;
  static inline int made = 0;
};

}  // namespace cohort::test
