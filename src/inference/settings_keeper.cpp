// SPDX-License-Identifier: Apache-2.0
#include "settings_keeper.hpp"

#include <serve/barrier.hpp>
#include <utility>

namespace cohort::inference {

settings_keeper::settings_keeper(std::function<void()> ask,
                                 std::function<void(const deferred::settings&)> keep,
                                 std::chrono::milliseconds period, const deferred::settings& first)
    : ask_{std::move(ask)},
      keep_{std::move(keep)},
      period_{period},
      found_{first},
      kept_{first},
      thread_{[this] { run(); }} {}

settings_keeper::~settings_keeper() {
  {
    const std::lock_guard lock{mutex_};
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void settings_keeper::found(const deferred::settings& s) {
  {
    const std::lock_guard lock{mutex_};
    found_ = s;
  }
  changed_.notify_one();
}

void settings_keeper::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    const bool timed_out =
        !changed_.wait_for(lock, period_, [this] { return over_ || found_ != kept_; });
    if (found_ != kept_) {
      const deferred::settings s = kept_ = found_;
      lock.unlock();
      serve::guarded("inference_server", "settings are not kept", [&] { keep_(s); });
      lock.lock();
    }
    if (over_ && found_ == kept_) return;
    if (!timed_out) continue;
    lock.unlock();
    serve::guarded("inference_server", "settings are not known", ask_);
    lock.lock();
  }
}

}  // namespace cohort::inference
