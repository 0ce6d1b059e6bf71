// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages from other threads to an engine's loop.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::engine {

/// The end of a batch, or of one request before its batch.
struct batch_end {
  batch_ticket at;
  bool failed;
  const request* only = nullptr;  ///< The request, if it ended alone.
};

/// The end of a probe of a device.
struct probe_end {
  device_id device;
  bool failed;
};

/// Messages to one loop from any thread: a lock held for a few instructions, a condition variable
/// to sleep on, and no allocation once its lists have grown. Thread safety: any thread may post;
/// one thread takes and waits.
class inbox {
 public:
  using control = std::function<void(time_point)>;

  /// All messages since the last take.
  struct messages {
    request_list arrivals;
    /// Number of first arrivals during which the loop stayed asleep.
    std::size_t slept_through = 0;
    std::vector<batch_end> ends;
    std::vector<probe_end> probes;
    std::vector<request*> cancels;
    std::vector<control> controls;

    [[nodiscard]] bool any() const noexcept { return !arrivals.empty() || any_but_arrivals(); }
    [[nodiscard]] bool any_but_arrivals() const noexcept {
      return !ends.empty() || !probes.empty() || !cancels.empty() || !controls.empty();
    }
  };

  /// @param wakes Whether to wake a sleeping loop if the request matters; if not, `wake_up` must
  /// follow.
  /// @param matters `matters(request)`, as for `doze`; otherwise the loop sleeps on.
  /// @returns False if the inbox accepts no more requests; the request is then unchanged.
  template <class F>
  bool post_arrival(request& r, bool wakes, F matters) noexcept {
    const std::lock_guard lock{mutex_};
    if (closed_) return false;
    COHORT_ASSERT_USE(r.hold.load(std::memory_order_relaxed) == engine_hold::none,
                      "submit: this request was submitted before and has not ended");
    r.hold.store(engine_hold::held, std::memory_order_relaxed);
    ++posted_;
    waiting_.arrivals.push_back(r);
    has_post_.store(true, std::memory_order_relaxed);
    judge(r, matters);
    if (wakes && !is_quiet_) wake();
    return true;
  }
  bool post_arrival(request& r, bool wakes = true) noexcept {
    return post_arrival(r, wakes, [](const request&) { return false; });
  }
  /// Wakes a sleeping loop for messages posted without waking it.
  void wake_up() noexcept {
    const std::lock_guard lock{mutex_};
    if (has_mail()) wake();
  }
  /// No effect if the request has ended, or its cancellation is already posted.
  void post_cancel(request& r) {
    const std::lock_guard lock{mutex_};
    if (r.hold.load(std::memory_order_relaxed) != engine_hold::held) return;
    waiting_.cancels.push_back(&r);  // If it throws, nothing has happened.
    engine_hold held = engine_hold::held;
    if (r.hold.compare_exchange_strong(held, engine_hold::cancelling, std::memory_order_relaxed)) {
      posted();
    } else {
      waiting_.cancels.pop_back();  // It has just ended.
    }
  }
  /// Calls `publish()` under the lock and wakes the loop, which detects the change itself.
  template <class F>
  void nudge(F&& publish) noexcept {
    const std::lock_guard lock{mutex_};
    publish();
    nudged_ = true;
    wake();
  }
  /// If memory is short it waits for some: ends must be reported.
  void post_end(batch_end e) noexcept { post_surely(waiting_.ends, e); }
  void post_probe_end(probe_end e) noexcept { post_surely(waiting_.probes, e); }
  /// @returns Whether the loop has ended: then the poster must run the action itself.
  bool post_control(control c) {
    const std::lock_guard lock{mutex_};
    waiting_.controls.push_back(std::move(c));
    posted();
    return ended_;
  }
  /// Ends the loop if nothing was posted since it took the last messages. @returns Whether it does.
  bool end() noexcept {
    const std::lock_guard lock{mutex_};
    ended_ = !waiting_.any();
    return ended_;
  }
  /// Refuses requests from now on.
  void close() noexcept {
    const std::lock_guard lock{mutex_};
    closed_ = true;
    wake();
  }
  [[nodiscard]] bool is_closed() noexcept {
    const std::lock_guard lock{mutex_};
    return closed_;
  }

  /// Swaps the messages with `empty`, which must have empty lists; their memory is reused.
  /// @returns Whether there were any. Concurrent posts may be left for the next call; before
  /// sleeping, the loop checks again under the lock.
  bool take(messages& empty) noexcept {
    if (!has_post_.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock{mutex_};
    has_post_.store(false, std::memory_order_relaxed);
    empty.arrivals.splice(empty.arrivals.end(), waiting_.arrivals);
    empty.slept_through = std::exchange(waiting_.slept_through, 0);
    if (std::exchange(has_others_, false)) {  // Usually there are only arrivals.
      waiting_.ends.swap(empty.ends);
      waiting_.probes.swap(empty.probes);
      waiting_.cancels.swap(empty.cancels);
      waiting_.controls.swap(empty.controls);
    }
    return empty.any();
  }

  /// Whether `take` would find any.
  [[nodiscard]] bool has_messages() noexcept {
    const std::lock_guard lock{mutex_};
    return waiting_.any();
  }

  /// Forgets a pending cancellation, here or in `taken`, of a request that has ended. Takes the
  /// lock only for that: a cancellation posted from now on finds the request ended.
  void forget(request& r, messages& taken) noexcept {
    ended_requests_.store(ended_requests_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    if (r.hold.exchange(engine_hold::none, std::memory_order_relaxed) != engine_hold::cancelling)
      return;
    const std::lock_guard lock{mutex_};
    std::erase(waiting_.cancels, &r);
    std::ranges::replace(taken.cancels, &r, static_cast<request*>(nullptr));
  }

  /// Requests that were taken and not forgotten: those without an outcome.
  [[nodiscard]] std::size_t in_engine() noexcept {
    const std::lock_guard lock{mutex_};
    return posted_ - ended_requests_.load(std::memory_order_relaxed);
  }

  /// From now on arrivals wait here without waking the loop until one matters, or `rouse`, which
  /// saves both sides most wake-ups. Called by the loop before it sleeps.
  /// @param matters `matters(request)`, `noexcept`, is called once for each arrival in order, under
  /// the lock, including those already waiting.
  template <class F>
  void doze(F matters) noexcept {
    const std::lock_guard lock{mutex_};
    is_quiet_ = true;
    waiting_.slept_through = 0;
    for (const request& r : waiting_.arrivals) judge(r, matters);
  }
  /// Ends dozing: every arrival wakes the loop. `sleep_until` does this at its end.
  void rouse() noexcept {
    const std::lock_guard lock{mutex_};
    is_quiet_ = false;
  }
  /// Whether a message must wake the loop.
  [[nodiscard]] bool has_to_wake() noexcept {
    const std::lock_guard lock{mutex_};
    return has_mail();
  }

  /// Sleeps until there is a message or the machine's steady clock shows `until`.
  /// @param dozes_until If dozing: no longer than this.
  /// @returns Whether `until` came first.
  bool sleep_until(time_point until, time_point dozes_until = distant_past) {
    std::unique_lock lock{mutex_};
    sleeping_ = true;
    const bool dozes = is_quiet_;
    const bool is_woken = dozes && wait_until(lock, std::min(until, dozes_until));
    is_quiet_ = false;
    const bool is_over = dozes && !is_woken && until <= dozes_until;
    const bool timed_out = is_over || (!has_mail() && !wait_until(lock, until));
    sleeping_ = false;
    nudged_ = false;
    close_seen_ = closed_;
    return timed_out;
  }

 private:
  /// Whether a message must wake the loop. Under the lock.
  [[nodiscard]] bool has_mail() const noexcept {
    return waiting_.any_but_arrivals() || (!is_quiet_ && !waiting_.arrivals.empty()) || nudged_ ||
           (closed_ && !close_seen_);
  }
  /// Under the lock: whether the loop sleeps on after the arrival of `r`.
  template <class F>
  void judge(const request& r, F& matters) noexcept {
    if (!is_quiet_) return;
    if (matters(r)) {
      is_quiet_ = false;
    } else {
      ++waiting_.slept_through;
    }
  }
  /// @returns Whether there is a message; otherwise the time has come.
  bool wait_until(std::unique_lock<std::mutex>& lock, time_point until) {
    const auto is_there = [this] { return has_mail(); };
    if (until == never) {
      arrived_.wait(lock, is_there);
      return true;
    }
    return arrived_.wait_until(lock,
                               std::chrono::steady_clock::time_point{
                                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                       until.time_since_epoch())},
                               is_there);
  }
  template <class T>
  void post_surely(std::vector<T>& to, const T& message) noexcept {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds{1})) {
      const std::lock_guard lock{mutex_};
      try {
        to.push_back(message);
        return posted();
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): once more.
      }
    }
  }
  /// Under the lock, like `wake`.
  void posted() noexcept {
    has_post_.store(true, std::memory_order_relaxed);
    has_others_ = true;
    wake();
  }
  /// Under the lock: once the loop has taken a message, its poster no longer touches the inbox,
  /// which may be destroyed.
  void wake() noexcept {
    if (sleeping_) arrived_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  messages waiting_;
  std::atomic<bool> has_post_{false};           // Any message waits: written under the lock.
  bool has_others_ = false;                     // Other than arrivals.
  std::size_t posted_ = 0;                      // Requests in total.
  std::atomic<std::size_t> ended_requests_{0};  // Written by the loop.
  bool sleeping_ = false;
  bool is_quiet_ = false;  // Dozing.
  bool nudged_ = false;
  bool closed_ = false;
  bool close_seen_ = false;
  bool ended_ = false;
};

}  // namespace cohort::engine
