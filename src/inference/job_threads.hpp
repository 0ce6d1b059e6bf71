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

/// Runs jobs, each on a thread of its own. Thread safety: one thread uses it, but `size` is for
/// any.
class job_threads {
 public:
  /// @param over Called with a job's number on its thread, as the last it does; throws nothing.
  explicit job_threads(std::function<void(std::uint64_t)> over) : over_{std::move(over)} {}
  /// Gives all up and waits for them, which those that hang never end.
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
        work = {};  // What it holds is freed here, not where it was begun.
        over_(number);
      }};
    } catch (...) {
      jobs_.erase(number);
      throw;
    }
    ++size_;
    return number;
  }
  /// Asks it to end early.
  void give_up(std::uint64_t number) { jobs_.at(number).stop->give_up(); }
  /// After `over`.
  void forget(std::uint64_t number) {
    jobs_.at(number).thread.join();
    jobs_.erase(number);
    --size_;
  }
  /// Jobs that have not ended.
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
