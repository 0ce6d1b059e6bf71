// SPDX-License-Identifier: Apache-2.0
#include "busy_time.hpp"

#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>

namespace cohort::serve {

duration busy_time_of_this_thread() {
  timespec ran{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  // The line's first number equals the one at the last tick.
  std::int64_t unused = 0;
  std::int64_t waited_ns = 0;
  std::ifstream{"/proc/thread-self/schedstat"} >> unused >> waited_ns;
  return std::chrono::seconds{ran.tv_sec} + std::chrono::nanoseconds{ran.tv_nsec + waited_ns};
}

}  // namespace cohort::serve
