// SPDX-License-Identifier: Apache-2.0
/// @file
/// A thread's busy time, as counted by the kernel.
#pragma once

#include <cohort/core/time.hpp>

namespace cohort::serve {

/// Total time for which the calling thread has run or waited for a processor. If the kernel does
/// not count waiting (/proc/thread-self/schedstat), only the time it has run. Takes some
/// microseconds.
[[nodiscard]] duration busy_time_of_this_thread();

}  // namespace cohort::serve
