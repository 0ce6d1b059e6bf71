// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a thread was busy, as the kernel counts it.
#pragma once

#include <cohort/core/time.hpp>

namespace cohort::serve {

/// How long the calling thread has run or waited for a processor, so far. Where the kernel does not
/// count the waiting (/proc/thread-self/schedstat), only how long it has run. Some microseconds.
[[nodiscard]] duration busy_time_of_this_thread();

}  // namespace cohort::serve
