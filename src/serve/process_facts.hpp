// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the kernel counts of this process: `facts_of_process`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::serve {

/// Of this process, from /proc; 0 where that is not known.
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

/// Open file descriptors; a guess where /proc is missing.
[[nodiscard]] std::size_t open_descriptors();

}  // namespace cohort::serve
