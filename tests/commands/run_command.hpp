// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the `cohort` program that was built, for tests of what users see.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace cohort::test {

struct command_result {
  int status;  ///< Exit status, or -1 if a signal ended it.
  std::string out;
  std::string err;
};

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

/// @param arguments As a shell reads them.
inline command_result cohort_command(const std::string& arguments, const std::string& input = "") {
  const std::string in = scratch("in");
  const std::string out = scratch("out");
  const std::string err = scratch("err");
  spill(in, input);
  const std::string line =
      std::string{COHORT_COMMAND} + " " + arguments + " <" + in + " >" + out + " 2>" + err;
  const int raw = std::system(line.c_str());
  command_result r{WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, slurp(out), slurp(err)};
  for (const std::string& file : {in, out, err}) std::remove(file.c_str());
  return r;
}

}  // namespace cohort::test
