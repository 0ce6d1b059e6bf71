// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs trials beside a running engine: `trial_thread`.
#pragma once

#include <cohort/deferred/twin/trial_runner.hpp>

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <thread>

namespace cohort::engine {

/// Runs rounds of trials on its own thread, which runs only on otherwise idle cores: on a busy
/// machine trials are late and then discarded, but take nothing from requests. It measures their
/// CPU time, so that a budget can be kept. Starting and polling take one atomic operation and a
/// wake-up, no lock. A `trial_runner`.
class trial_thread {
 public:
  /// @throws std::system_error If no thread can be created.
  trial_thread() : shared_{std::make_unique<shared>()} {}

  void start(deferred::tuning_job& j) noexcept {
    shared_->job = &j;
    shared_->is_cancelled = false;
    shared_->tell(state::busy);
  }
  [[nodiscard]] bool is_done() const noexcept { return shared_->now.load() != state::busy; }
  void cancel() noexcept { shared_->is_cancelled = true; }

 private:
  enum class state : std::uint8_t { idle, busy, over };
  struct shared {
    shared() : thread{[this] { run(); }} {}
    ~shared() {
      is_cancelled = true;
      now.wait(state::busy);
      tell(state::over);
      thread.join();
    }
    shared(const shared&) = delete;
    shared& operator=(const shared&) = delete;

    void tell(state s) noexcept {
      now.store(s);
      now.notify_all();
    }
    void run() noexcept {
      yield_to_all();
      for (;;) {
        now.wait(state::idle);
        if (now.load() == state::over) return;
        const std::chrono::nanoseconds before = cpu_time();
        job->run(&is_cancelled);
        job->cost = cpu_time() - before;
        tell(state::idle);
      }
    }
    /// Lowers this thread's priority; does nothing if that is not permitted.
    static void yield_to_all() noexcept {
#ifdef SCHED_IDLE
      const sched_param none{};
      pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
#else
      setpriority(PRIO_PROCESS, 0, 19);
#endif
    }
    static std::chrono::nanoseconds cpu_time() noexcept {
      timespec t{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
    }

    deferred::tuning_job* job = nullptr;  // While busy, owned by the thread.
    std::atomic<state> now{state::idle};
    std::atomic<bool> is_cancelled{false};
    std::thread thread;  // Last, as it uses the others.
  };

  std::unique_ptr<shared> shared_;
};
static_assert(deferred::trial_runner<trial_thread>);

}  // namespace cohort::engine
