// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernel's statistics of this process: `facts_of_process`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::serve {

/// Statistics of this process, from /proc; 0 if unknown.
struct process_facts {
  double cpu_seconds = 0;    ///< User and system time.
  double start_seconds = 0;  ///< Since the Unix epoch.
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  std::uint64_t open_descriptors = 0;
  std::uint64_t most_descriptors = 0;
};

/// Thread safety: any thread.
[[nodiscard]] process_facts facts_of_process();

/// Open file descriptors; a guess without /proc.
[[nodiscard]] std::size_t open_descriptors();

}  // namespace cohort::serve
