// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the `cohort` program that was built, for tests of what users see.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <support/scratch_file.hpp>

namespace cohort::test {

struct command_result {
  int status;  ///< Exit status, or -1 if a signal ended it.
  std::string out;
  std::string err;
};

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
