// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device in virtual time that runs the stages of a pipeline: one at a time, or shared.
#pragma once

#include <cohort/batching/pipeline.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace cohort::batching {

/// Something that runs on the device.
struct device_item {
  std::uint32_t lane;
  std::uint32_t stage;
  std::uint64_t order;  ///< Age of its row.
  std::uint32_t first;  ///< First slot: earlier children come first.
  double work_ns;       ///< Time it takes alone.
  double share;         ///< Part of the device that it uses.

  /// On a serial device: the oldest row, in it the earliest child, then the latest stage.
  [[nodiscard]] bool before(const device_item& o) const noexcept {
    return std::tuple{order, first, -static_cast<std::int64_t>(stage)} <
           std::tuple{o.order, o.first, -static_cast<std::int64_t>(o.stage)};
  }
};

/// A serial device runs one item at a time, chosen when it is free. A shared one runs all at once:
/// at full speed while their shares sum to at most 1, beyond that all slow down in proportion.
/// Deterministic. O(items) an event.
class stage_device {
 public:
  explicit stage_device(bool parallel) : parallel_{parallel} {}

  void add(const device_item& i) { (parallel_ ? running_ : ready_).push_back(i); }

  /// Lets a free serial device start its next item. Call when all of an instant has happened.
  void start() {
    if (parallel_ || !running_.empty() || ready_.empty()) return;
    auto next = ready_.begin();
    for (auto i = next + 1; i != ready_.end(); ++i) {
      if (i->before(*next)) next = i;
    }
    running_.push_back(*next);
    ready_.erase(next);
  }

  [[nodiscard]] bool is_busy() const noexcept { return !running_.empty(); }
  /// When the next item ends if nothing is added, or `never`.
  [[nodiscard]] time_point next() const noexcept {
    if (running_.empty()) return never;
    double least = running_.front().work_ns;
    for (const device_item& i : running_) least = std::min(least, i.work_ns);
    return now_ + duration{std::llround(std::max(0.0, least) * slowdown())};
  }

  /// Moves on to `now`, which must not be beyond `next()`; calls `done(item)` for what has ended,
  /// the oldest first.
  template <class Done>
  void advance(time_point now, Done&& done) {
    const double passed = static_cast<double>((now - now_).count()) / slowdown();
    now_ = now;
    for (device_item& i : running_) i.work_ns -= passed;
    ended_.clear();
    std::erase_if(running_, [&](const device_item& i) {
      const bool over = i.work_ns < 0.5;  // Less than the resolution of time.
      if (over) ended_.push_back(i);
      return over;
    });
    std::ranges::sort(ended_, [](const auto& a, const auto& b) { return a.before(b); });
    for (const device_item& i : ended_) done(i);
  }

 private:
  [[nodiscard]] double slowdown() const noexcept {
    if (!parallel_) return 1;
    double sum = 0;
    for (const device_item& i : running_) sum += i.share;
    return std::max(1.0, sum);
  }

  bool parallel_;
  time_point now_{};
  std::vector<device_item> running_;
  std::vector<device_item> ready_;
  std::vector<device_item> ended_;
};

}  // namespace cohort::batching
