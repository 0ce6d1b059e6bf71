// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes down what a running scheduler finds best, so that a server that is killed has it again.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace cohort::inference {

/// Asks every period, and keeps what changed. A thread of its own does both, so that a slow disk
/// holds up nobody. Thread safety: `found` from any thread.
class settings_keeper {
 public:
  /// @param ask Has `found` called, at once or later; on the keeper's thread.
  /// @param keep Writes, on the keeper's thread; not for what was found before, `first` at first.
  settings_keeper(std::function<void()> ask, std::function<void(const deferred::settings&)> keep,
                  std::chrono::milliseconds period, const deferred::settings& first);
  /// Keeps what was found last. Then nobody may call `found`.
  ~settings_keeper();
  settings_keeper(const settings_keeper&) = delete;
  settings_keeper& operator=(const settings_keeper&) = delete;

  void found(const deferred::settings& s);

 private:
  void run();

  std::function<void()> ask_;
  std::function<void(const deferred::settings&)> keep_;
  std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  deferred::settings found_;
  deferred::settings kept_;
  bool over_ = false;
  std::thread thread_;  // Last: it uses all the others.
};

}  // namespace cohort::inference
