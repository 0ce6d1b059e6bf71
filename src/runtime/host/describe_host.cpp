// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

#include "multiply.hpp"

namespace cohort::runtime {
namespace {

/// What Linux says of the first processor; the fields depend on the architecture.
std::string describe_processor() {
  constexpr std::array<std::string_view, 8> told{"model name",  "cpu family",     "model",
                                                 "stepping",    "cache size",     "CPU part",
                                                 "CPU variant", "CPU implementer"};
  std::string text;
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string_view name{line.data(), line.find_first_of("\t:")};
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos || std::ranges::find(told, name) == told.end()) continue;
    const std::string value = line.substr(colon + 2);
    text += text.empty() ? value : fmt::format(", {} {}", name, value);
  }
  return text.empty() ? "unknown processor" : text;
}

}  // namespace

std::string describe_host() {
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  return fmt::format("{}; {} cores; {}", describe_processor(), cores, detail::describe_products());
}

}  // namespace cohort::runtime
