// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests whose bodies nobody has parsed yet, no more than will be in time.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace cohort::serve {

/// Mean and mean deviation of a duration of late, as TCP has them of round trips. O(1).
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
  /// What few exceed: the mean and four deviations.
  [[nodiscard]] duration most() const noexcept { return from_ns(mean_ + 4 * deviation_); }

 private:
  static duration from_ns(double ns) noexcept { return duration{std::llround(ns)}; }
  bool is_known_ = false;
  double mean_ = 0;
  double deviation_ = 0;
};

/// How many requests a server may have, read or not, at one time. There is no limit until it has
/// taken one in vain: by then it had more than it could serve in time. From then on what is
/// dropped or refused behind the parser takes one away each, and what is completed while about all
/// are there adds a tenth. So a tenth as many are parsed in vain as are served: those behind the
/// parser always have more than enough to choose from, and few are parsed for nothing. One that is
/// late takes away a tenth of all, once a round, as TCP has it: nobody behind the parser knew that
/// it would be, so the machine is too slow for what there is.
class serving_window {
 public:
  [[nodiscard]] bool has_room(std::size_t inside) const noexcept {
    return static_cast<double>(inside) < size_;
  }
  /// Some of `inside` were completed in time.
  void completed(std::size_t inside, std::size_t how_many) noexcept {
    if (2 * static_cast<double>(inside) >= size_) size_ += static_cast<double>(how_many) / 10;
  }
  /// Some of `inside` were dropped or refused.
  void wasted(std::size_t inside, std::size_t how_many) noexcept {
    reduce(inside, static_cast<double>(how_many));
  }
  /// One of `inside` was late.
  /// @param round No more than one counts in so long: many are late at a time.
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

/// What must be known of a request to say whether it will be in time.
struct time_budget {
  duration limit{0};  ///< From its arrival to its answer.
  duration rest{0};   ///< Of which it takes so much from when it is taken: measured.

  /// How long it may wait. At least half of the limit whatever `rest` is: a rest that was measured
  /// in bad times would else never be measured again. Of what is left, half: what it waited before
  /// it was seen, in the socket and at its client, is not known here.
  [[nodiscard]] duration patience() const noexcept {
    return (limit - std::min(rest, limit / 2)) / 2;
  }
};

/// The queue between a server that reads requests, which is cheap, and one that parses and serves
/// them, which is not, on one thread. Measures how fast requests are taken while some wait,
/// whatever else the thread and the machine do meanwhile, and refuses at its door who would wait
/// too long behind those that are there. As each connection has one request at a time, first come,
/// first served is fair among them, and who is refused is who came when it was full.
///
/// A value: time is told. Thread safety: none.
/// @tparam T A request; movable.
template <class T>
class unread_queue {
 public:
  /// Whether a request that arrives now would be taken in time. It always is where nobody waits.
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
    bool is_late;  ///< It waited longer than it may: serving it would only make others late.
  };
  /// The one that waits longest; nothing if nobody does.
  [[nodiscard]] std::optional<taken> take(time_point now) {
    if (queue_.empty()) return std::nullopt;
    entry e = std::move(queue_.front());
    queue_.pop_front();
    taken t{std::move(e.what), e.arrival,
            now - e.arrival > e.budget.limit - std::min(e.budget.rest, e.budget.limit / 2)};
    // Those that are late take next to no time, which says nothing of those that are not.
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
  bool was_followed_ = false;  // Others waited from `last_` on.
};

}  // namespace cohort::serve
