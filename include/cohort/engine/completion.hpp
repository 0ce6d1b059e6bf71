// SPDX-License-Identifier: Apache-2.0
/// @file
/// Completion contexts: where an engine's outcomes are handled.
#pragma once

#include <cohort/core/outcome.hpp>
#include <cohort/core/request.hpp>
#include <cohort/engine/loop.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Calls `handler(request&, outcome)` at once, on the loop's thread: for handlers of a microsecond
/// or so, or that post to an executor of their own. An exception ends with the handler: it is
/// counted, and nobody else hears of it.
template <class Handler>
class inline_completion {
 public:
  explicit inline_completion(Handler handler) : handler_{std::move(handler)} {}

  void deliver(request& r, outcome how) noexcept {
    try {
      handler_(r, how);
    } catch (...) {
      ++failures_;
    }
  }
  /// Handlers that threw.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }

 private:
  Handler handler_;
  std::uint64_t failures_ = 0;
};

/// Keeps outcomes until another thread asks for them: for programs with an event loop of their own.
/// Thread safety: `deliver` by the loop, `drain_to` by one other thread.
class outcome_queue {
 public:
  struct item {
    request* ended;
    outcome how;
  };

  void push(request& r, outcome how) {
    const std::lock_guard lock{mutex_};
    items_.push_back({&r, how});
  }
  /// Calls `handler(request&, outcome)` for each outcome there is. @returns How many.
  template <class Handler>
  std::size_t drain_to(Handler&& handler) {
    taken_.clear();
    {
      const std::lock_guard lock{mutex_};
      taken_.swap(items_);
    }
    for (const item& i : taken_) handler(*i.ended, i.how);
    return taken_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<item> items_;
  std::vector<item> taken_;
};

/// Delivers into an `outcome_queue`, which must outlive the engine.
class queued_completion {
 public:
  explicit queued_completion(outcome_queue& queue) noexcept : queue_{&queue} {}
  void deliver(request& r, outcome how) noexcept { queue_->push(r, how); }

 private:
  outcome_queue* queue_;
};
static_assert(completion_context<queued_completion>);

}  // namespace cohort::engine
