// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues requests with unparsed bodies, limited to those that will be in time.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace cohort::serve {

/// Recent mean and mean deviation of a duration, as TCP computes them for round trips. O(1).
class recent_duration {
 public:
  void add(duration x) noexcept {
    const auto ns = static_cast<double>(x.count());
    if (!std::exchange(is_known_, true)) {
      mean_ = ns;
      return;
    }
    deviation_ += (std::abs(ns - mean_) - deviation_) / 8;
    mean_ += (ns - mean_) / 16;
  }
  [[nodiscard]] duration mean() const noexcept { return from_ns(mean_); }
  /// An upper limit that few exceed: the mean plus four deviations.
  [[nodiscard]] duration most() const noexcept { return from_ns(mean_ + 4 * deviation_); }

 private:
  static duration from_ns(double ns) noexcept { return duration{std::llround(ns)}; }
  bool is_known_ = false;
  double mean_ = 0;
  double deviation_ = 0;
};

/// Limits the requests in a server, read or not. There is no limit until the first accepted request
/// is wasted, which shows that there are more than can be served in time. From then on each request
/// dropped or refused behind the parser lowers the limit by one, and each completion near the limit
/// raises it by 0.1. So one request is parsed in vain for every ten served: the parser always
/// supplies enough, at little waste. A late request lowers it by 10 %, once a round, as in TCP: its
/// lateness was not predicted, so the machine is too slow.
class serving_window {
 public:
  [[nodiscard]] bool has_room(std::size_t inside) const noexcept {
    return static_cast<double>(inside) < size_;
  }
  /// Some of the `inside` requests were completed in time.
  void completed(std::size_t inside, std::size_t how_many) noexcept {
    if (2 * static_cast<double>(inside) >= size_) size_ += static_cast<double>(how_many) / 10;
  }
  /// Some of the `inside` requests were dropped or refused.
  void wasted(std::size_t inside, std::size_t how_many) noexcept {
    reduce(inside, static_cast<double>(how_many));
  }
  /// One of the `inside` requests was late.
  /// @param round At most one counts in this time: many are late at once.
  void late(std::size_t inside, time_point now, duration round) noexcept {
    if (has_cut_ && now - cut_ < round) return;
    has_cut_ = true;
    cut_ = now;
    reduce(inside, std::min(size_, static_cast<double>(inside)) / 10);
  }

 private:
  void reduce(std::size_t inside, double by) noexcept {
    size_ = std::max(1.0, std::min(size_, static_cast<double>(inside)) - by);
  }

  double size_ = HUGE_VAL;
  time_point cut_;
  bool has_cut_ = false;
};

/// The data for deciding whether a request will be in time.
struct time_budget {
  duration limit{0};  ///< Time from its arrival to its answer.
  duration rest{0};   ///< Measured part of it after the request is taken.

  /// How long it may wait. At least half of the limit whatever `rest` is, as otherwise a rest
  /// measured in bad times would never be measured again. Of what is left, half: its earlier wait
  /// in the socket and at its client is not known here.
  [[nodiscard]] duration patience() const noexcept {
    return (limit - std::min(rest, limit / 2)) / 2;
  }
};

/// The queue on one thread between cheap reading of requests and expensive parsing and serving.
/// Measures how fast requests are taken while some wait, whatever else the thread and the machine
/// do, and refuses arrivals that would wait too long. As each connection has one request at a time,
/// first come, first served is fair among them, and a refused request is one that arrived when the
/// queue was full.
///
/// A value: it is told the time. Thread safety: none.
/// @tparam T A request; movable.
template <class T>
class unread_queue {
 public:
  /// Whether a request that arrives now would be taken in time. Always true if none waits.
  [[nodiscard]] bool admits(const time_budget& b) const noexcept {
    return queue_.empty() || expected_wait() <= b.patience();
  }
  /// How long a request that arrives now would wait.
  [[nodiscard]] duration expected_wait() const noexcept {
    return gap_.mean() * static_cast<duration::rep>(queue_.size());
  }

  void enter(T what, const time_budget& b, time_point now) {
    queue_.push_back({std::move(what), now, b});
  }

  struct taken {
    T what;
    time_point arrival;
    bool is_late;  ///< It waited too long: serving it would only delay others.
  };
  /// Takes the request that has waited longest, if any.
  [[nodiscard]] std::optional<taken> take(time_point now) {
    if (queue_.empty()) return std::nullopt;
    entry e = std::move(queue_.front());
    queue_.pop_front();
    taken t{std::move(e.what), e.arrival,
            now - e.arrival > e.budget.limit - std::min(e.budget.rest, e.budget.limit / 2)};
    // Late requests take almost no time, which says nothing about others.
    if (!t.is_late) {
      if (was_followed_) gap_.add(now - last_);
      last_ = now;
      was_followed_ = true;
    }
    if (queue_.empty()) was_followed_ = false;  // The next gap is one without work.
    return t;
  }

  [[nodiscard]] std::size_t size() const noexcept { return queue_.size(); }
  [[nodiscard]] bool empty() const noexcept { return queue_.empty(); }

 private:
  struct entry {
    T what;
    time_point arrival;
    time_budget budget;
  };
  std::deque<entry> queue_;
  recent_duration gap_;  // Between two that are taken while others wait.
  time_point last_;
  bool was_followed_ = false;  // Others have waited since `last_`.
};

}  // namespace cohort::serve
