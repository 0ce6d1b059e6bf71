// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ends abandoned runs of models: `run_stop`.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

namespace cohort::models {

/// Work that another thread may abandon. A run ends where it can: a model of ONNX Runtime before
/// its next operator. Thread safety: any thread.
class run_stop {
 public:
  /// Permanent.
  void give_up() noexcept {
    const std::lock_guard lock{mutex_};
    given_up_ = true;
    if (interrupt_) interrupt_();
  }
  /// Valid as long as this.
  [[nodiscard]] const std::atomic<bool>* given_up() const noexcept { return &given_up_; }

  /// While it exists, `interrupt` is called when the work is abandoned. One at a time.
  class watch {
   public:
    /// @param of Must outlive it, or null: never abandoned. @param interrupt Must not throw.
    watch(run_stop* of, std::function<void()> interrupt) : of_{of} {
      if (of_ != nullptr) of_->watched_by(std::move(interrupt));
    }
    ~watch() {
      if (of_ != nullptr) of_->watched_by({});
    }
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;

   private:
    run_stop* of_;
  };

 private:
  void watched_by(std::function<void()> interrupt) {
    const std::lock_guard lock{mutex_};
    interrupt_ = std::move(interrupt);
  }

  std::atomic<bool> given_up_{false};
  std::mutex mutex_;
  std::function<void()> interrupt_;
};

}  // namespace cohort::models
