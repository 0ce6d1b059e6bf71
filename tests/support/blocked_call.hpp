// SPDX-License-Identifier: Apache-2.0
/// @file
/// Servers on the host of whose devices one hangs, or all fail, for as long as a test wants it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include <support/scratch_file.hpp>
#include <support/soon.hpp>

namespace cohort::test {

/// Servers that are started while it exists have `blocking_calls.cpp` in them. Other programs that
/// the test starts would, too.
class blocked_call {
 public:
  /// @param call One of those that the library knows.
  explicit blocked_call(const char* call) {
    setenv("LD_PRELOAD", BLOCKING_CALLS, 1);
    setenv("COHORT_BLOCKING_FILE", file_.c_str(), 1);
    setenv("COHORT_BLOCKED_CALL", call, 1);
  }
  ~blocked_call() {
    release();  // So that nothing hangs that is to end.
    unsetenv("LD_PRELOAD");
    unsetenv("COHORT_BLOCKING_FILE");
    unsetenv("COHORT_BLOCKED_CALL");
  }
  blocked_call(const blocked_call&) = delete;
  blocked_call& operator=(const blocked_call&) = delete;

  /// From now on whoever makes the call first hangs, or everybody's throws.
  void block() const { spill(file_, "hang"); }
  void release() const { std::remove(file_.c_str()); }

 private:
  std::string file_ = scratch("blocked");
};

}  // namespace cohort::test
