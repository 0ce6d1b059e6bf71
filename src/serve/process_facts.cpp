// SPDX-License-Identifier: Apache-2.0
#include "process_facts.hpp"

#include <sys/resource.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace cohort::serve {
namespace {

/// The instant at which the machine started, in seconds since the Unix epoch.
double boot_seconds() {
  std::ifstream file{"/proc/stat"};
  std::string word;
  double seconds = 0;
  while (file >> word) {
    if (word == "btime" && file >> seconds) break;
  }
  return seconds;
}

}  // namespace

std::size_t open_descriptors() {
  std::error_code e;
  const std::filesystem::directory_iterator all{"/proc/self/fd", e};
  return e ? 16 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

process_facts facts_of_process() {
  process_facts f;
  std::ifstream file{"/proc/self/stat"};
  std::string line;
  std::getline(file, line);
  // Its second field is the program's name in parentheses, which may hold spaces and parentheses.
  std::istringstream fields{line.substr(line.rfind(')') + 1)};
  std::string field;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  std::uint64_t start = 0;
  std::uint64_t pages = 0;
  for (int i = 3; i < 14; ++i) fields >> field;  // proc(5): user time is the 14th field.
  fields >> user >> system;
  for (int i = 16; i < 22; ++i) fields >> field;
  fields >> start >> f.virtual_bytes >> pages;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const double boot = boot_seconds();
  f.cpu_seconds = static_cast<double>(user + system) / ticks;
  f.start_seconds = boot + static_cast<double>(start) / ticks;
  f.resident_bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  f.open_descriptors = open_descriptors();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) f.most_descriptors = limit.rlim_cur;
  return f;
}

}  // namespace cohort::serve
