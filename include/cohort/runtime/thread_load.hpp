// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a thread that is late lacks processors or hangs: `thread_load`.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace cohort::runtime {

/// The processor time of a thread, or of several that work for each other in turn, since they
/// began. The two times never decrease. All zero if not known.
struct thread_load {
  duration run{0};           ///< On a processor.
  duration waited{0};        ///< Ready to run, until the latest time that it got a processor.
  bool is_runnable = false;  ///< It runs or is ready to run at this moment.

  friend constexpr thread_load operator+(const thread_load& a, const thread_load& b) noexcept {
    return {a.run + b.run, a.waited + b.waited, a.is_runnable || b.is_runnable};
  }
  bool operator==(const thread_load&) const = default;
};

/// How long, between two readings, work wanted a processor and had none: its threads' waiting time
/// plus, if one is runnable now, the time not accounted for yet, since a wait is counted only when
/// it ends. A thread that sleeps, is blocked or computes all the time is not starved. Range: 0 to
/// `between`.
[[nodiscard]] constexpr duration starved_time(const thread_load& first, const thread_load& last,
                                              duration between) noexcept {
  const duration waited = last.waited - first.waited;
  const duration rest = between - waited - (last.run - first.run);
  const duration all = waited + (last.is_runnable ? std::max(rest, duration{0}) : duration{0});
  return std::clamp(all, duration{0}, std::max(between, duration{0}));
}

/// Reads the load of a thread of this process from /proc/self/task: some microseconds. Any thread.
/// @param id The kernel's thread id (`gettid`). @returns All zero if there is no such thread, or no
///         /proc.
[[nodiscard]] inline thread_load load_of_thread(int id) noexcept {
  char text[512];
  const auto read = [&](const char* file) noexcept -> std::string_view {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/%s", id, file);
    std::FILE* const in = std::fopen(path, "re");
    if (in == nullptr) return {};
    const std::size_t n = std::fread(text, 1, sizeof(text), in);
    std::fclose(in);
    return {text, n};
  };
  std::int64_t run = 0;
  std::int64_t waited = 0;
  const std::string_view times = read("schedstat");  // "RUN WAITED TURNS", in nanoseconds.
  const char* const begin = times.data();
  const char* const end = begin + times.size();
  const auto first = std::from_chars(begin, end, run);
  if (first.ec != std::errc{} || first.ptr == end) return {};
  if (std::from_chars(first.ptr + 1, end, waited).ec != std::errc{}) return {};
  const std::string_view stat = read("stat");  // "ID (NAME) STATE ...".
  const std::size_t name_end = stat.rfind(") ");
  const bool is_runnable =
      name_end != std::string_view::npos && stat.substr(name_end + 2, 1) == "R";
  return {std::chrono::nanoseconds{run}, std::chrono::nanoseconds{waited}, is_runnable};
}

}  // namespace cohort::runtime
