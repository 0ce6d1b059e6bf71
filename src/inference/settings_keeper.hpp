// SPDX-License-Identifier: Apache-2.0
/// @file
/// Saves a scheduler's best settings as it runs, so that a killed server can restore them.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace cohort::inference {

/// Asks for the settings periodically, and saves changes. Both run on a separate thread, so that a
/// slow disk delays no other. Thread safety: `found` from any thread.
class settings_keeper {
 public:
  /// @param ask Causes a call of `found`, at once or later; runs on the keeper's thread.
  /// @param keep Saves settings that differ from the last ones, at first `first`; same thread.
  settings_keeper(std::function<void()> ask, std::function<void(const deferred::settings&)> keep,
                  std::chrono::milliseconds period, const deferred::settings& first);
  /// Saves the last settings. No thread may call `found` from then on.
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
  std::thread thread_;  // Last: it uses the other members.
};

}  // namespace cohort::inference
