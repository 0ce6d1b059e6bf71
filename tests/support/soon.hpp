// SPDX-License-Identifier: Apache-2.0
/// @file
/// Waiting for what becomes so in another process.
#pragma once

#include <chrono>
#include <thread>

namespace cohort::test {

/// Looks again and again. @returns Whether it became so in a time that is long on any machine.
template <class Predicate>
bool soon(Predicate is_so) {
  using namespace std::chrono_literals;
  const auto until = std::chrono::steady_clock::now() + 100s;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

}  // namespace cohort::test
