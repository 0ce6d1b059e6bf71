// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/byte_ledger.hpp>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <fstream>

namespace cohort::serve {

std::size_t default_request_memory() {
  std::uint64_t most = UINT64_MAX;
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    most = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
  // Without a limit the file contains "max", which is no number.
  std::uint64_t group = 0;
  if (std::ifstream{"/sys/fs/cgroup/memory.max"} >> group) most = std::min(most, group);
  for (const auto which : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(which, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      most = std::min<std::uint64_t>(most, limit.rlim_cur);
    }
  }
  constexpr std::uint64_t least = std::uint64_t{64} << 20U;
  return static_cast<std::size_t>(std::max(least, most / 4));
}

}  // namespace cohort::serve
