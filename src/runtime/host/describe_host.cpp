// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

namespace cohort::runtime {
namespace {

/// Linux's description of the first processor; the fields depend on the architecture.
std::string describe_processor() {
  constexpr std::array<std::string_view, 8> told{"model name",  "cpu family",     "model",
                                                 "stepping",    "cache size",     "CPU part",
                                                 "CPU variant", "CPU implementer"};
  std::array<std::string, told.size()> values;
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string_view name = std::string_view{line}.substr(0, line.find_first_of("\t:"));
    const auto field = std::ranges::find(told, name);
    const std::size_t colon = line.find(": ");
    if (field == told.end() || colon == std::string::npos) continue;
    values[static_cast<std::size_t>(field - told.begin())] = line.substr(colon + 2);
  }
  std::string text = values[0];
  for (std::size_t i = 1; i < told.size(); ++i) {
    if (values[i].empty()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", told[i], values[i]);
  }
  return text.empty() ? "unknown processor" : text;
}

}  // namespace

std::string describe_host(const host_products& products) {
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  std::string text = fmt::format("{}; {} cores", describe_processor(), cores);
  if (products.describe != nullptr) text += "; " + products.describe();
  return text;
}

}  // namespace cohort::runtime
