// SPDX-License-Identifier: Apache-2.0
/// @file
/// Threads for work that may hang: `job_threads`.
#pragma once

#include <models/run_stop.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <serve/barrier.hpp>
#include <thread>
#include <utility>

namespace cohort::inference {

/// Runs each job on its own thread. Thread safety: `size` from any thread, the rest from one.
class job_threads {
 public:
  /// @param over Called with the job's number as the last action of its thread; must not throw.
  explicit job_threads(std::function<void(std::uint64_t)> over) : over_{std::move(over)} {}
  /// Stops all jobs and waits for them; a job that hangs blocks this for ever.
  ~job_threads() {
    for (auto& [number, j] : jobs_) j.stop->give_up();
    for (auto& [number, j] : jobs_) j.thread.join();
  }
  job_threads(const job_threads&) = delete;
  job_threads& operator=(const job_threads&) = delete;

  /// @returns The job's number. @throws std::system_error If there are no more threads.
  std::uint64_t begin(std::shared_ptr<models::run_stop> stop, std::function<void()> work) {
    const std::uint64_t number = ++last_;
    job& j = jobs_[number];
    j.stop = std::move(stop);
    try {
      j.thread = std::thread{[this, number, work = std::move(work)]() mutable {
        serve::guarded("inference_server", "a load", work);
        work = {};  // Frees the captured data here, not on the thread that began the job.
        over_(number);
      }};
    } catch (...) {
      jobs_.erase(number);
      throw;
    }
    ++size_;
    return number;
  }
  /// Asks a job to end early.
  void give_up(std::uint64_t number) { jobs_.at(number).stop->give_up(); }
  /// Joins a job's thread; call it after `over`.
  void forget(std::uint64_t number) {
    jobs_.at(number).thread.join();
    jobs_.erase(number);
    --size_;
  }
  /// Number of jobs that have not ended.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct job {
    std::shared_ptr<models::run_stop> stop;
    std::thread thread;
  };
  std::function<void(std::uint64_t)> over_;
  std::map<std::uint64_t, job> jobs_;
  std::uint64_t last_ = 0;
  std::atomic<std::size_t> size_{0};
};

}  // namespace cohort::inference
