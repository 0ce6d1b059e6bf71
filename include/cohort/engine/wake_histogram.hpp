// SPDX-License-Identifier: Apache-2.0
/// @file
/// How late timers fire on this machine, counted and measured.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/time.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <sys/prctl.h>

namespace cohort::engine {

/// Delays by powers of two of a microsecond: bucket 0 counts those below 1 µs, bucket i those from
/// 2^(i−1) to 2^i µs, the last one all above. Thread safety: none.
class wake_histogram {
 public:
  static constexpr std::size_t buckets = 20;

  void add(duration delay) noexcept {
    const std::int64_t us = delay.count() < 0 ? 0 : delay.count() / 1000;
    auto b = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(us)));
    if (b >= buckets) b = buckets - 1;
    ++counts_[b];
    ++total_;
  }
  [[nodiscard]] std::uint64_t count(std::size_t bucket) const noexcept { return counts_[bucket]; }
  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  /// The upper limit of a bucket.
  [[nodiscard]] static duration limit(std::size_t bucket) noexcept {
    return std::chrono::microseconds{std::int64_t{1} << bucket};
  }
  /// An upper bound for at least the fraction `q` of the delays; 0 if there are none.
  [[nodiscard]] duration quantile(double q) const noexcept {
    const double wanted = q * static_cast<double>(total_);
    double seen = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      seen += static_cast<double>(counts_[b]);
      if (total_ > 0 && seen >= wanted) return limit(b);
    }
    return duration{0};
  }

 private:
  std::array<std::uint64_t, buckets> counts_{};
  std::uint64_t total_ = 0;
};

/// Asks the system not to group this thread's timers with others (Linux: timer slack of 1 ns).
inline void set_precise_sleep() noexcept { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

/// Sleeps `naps` times for a few hundred microseconds on the calling thread, as an engine's loop
/// does, and counts how late it wakes. Takes about half a millisecond a nap. Use
/// `measure_wake_delays().quantile(0.9)` as `network_delays::wake_margin`; a busy machine is later.
[[nodiscard]] inline wake_histogram measure_wake_delays(int naps = 200) {
  set_precise_sleep();
  wake_histogram h;
  steady_clock clock;
  std::mutex mutex;
  std::condition_variable nobody;
  std::unique_lock lock{mutex};
  for (int i = 0; i < naps; ++i) {
    const time_point until = clock.now() + std::chrono::microseconds{300 + 37 * (i % 10)};
    const std::chrono::steady_clock::time_point at{until.time_since_epoch()};
    while (nobody.wait_until(lock, at) != std::cv_status::timeout) {
    }
    h.add(clock.now() - until);
  }
  return h;
}

}  // namespace cohort::engine
