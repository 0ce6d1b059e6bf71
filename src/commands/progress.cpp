// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace cohort::commands {

progress_bar::progress_bar(std::string label, std::string unit)
    : label_{std::move(label)},
      unit_{std::move(unit)},
      shown_{isatty(STDERR_FILENO) == 1},
      start_{clock::now()},
      drawn_{start_} {}

progress_bar::~progress_bar() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void progress_bar::set_label(std::string label) {
  const std::lock_guard lock{mutex_};
  label_ = std::move(label);
}

void progress_bar::update(double part, double units) {
  if (!shown_) return;
  const std::lock_guard lock{mutex_};
  const clock::time_point now = clock::now();
  if (now - drawn_ < std::chrono::milliseconds{100}) return;
  drawn_ = now;
  constexpr std::size_t width = 24;
  part = std::clamp(part, 0.0, 1.0);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const auto full = static_cast<std::size_t>(part * width);
  const double rate = units / elapsed;
  const std::string speed = rate >= 1e6   ? fmt::format("{:.1f} M", rate / 1e6)
                            : rate >= 1e3 ? fmt::format("{:.0f} k", rate / 1e3)
                                          : fmt::format("{:.1f} ", rate);
  const std::string left =
      part > 0.01 ? fmt::format("{:.0f} s left", elapsed * (1 - part) / part) : std::string{};
  fmt::print(stderr, "\r\x1b[K{} [{}{}] {:3.0f} %  {}{}/s  {}", label_, std::string(full, '#'),
             std::string(width - full, '.'), 100 * part, speed, unit_, left);
  std::fflush(stderr);
}

}  // namespace cohort::commands
