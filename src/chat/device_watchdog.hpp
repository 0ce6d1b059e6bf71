// SPDX-License-Identifier: Apache-2.0
/// @file
/// Looks at a device that may keep all who wait for it: `device_watchdog`.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/runtime/thread_load.hpp>

#include <llama/text_generator.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "chat_metrics.hpp"
#include "device_watch.hpp"

namespace cohort::chat {

/// Why a device is out of service.
enum class device_trouble : std::uint8_t { none, hangs, fails };

/// Who gives their ends to the texts that a device out of service would keep. Called on the thread
/// of a `device_watchdog`, which holds no lock meanwhile.
class trouble_listener {
 public:
  /// It was found to hang or to fail: `trouble` says so already, so that whoever comes from now on
  /// is refused.
  virtual void is_out() noexcept = 0;
  /// It has hung in this for `watch_options::until_texts_end`.
  virtual void stays_away(llama::device_work what) noexcept = 0;
  /// What the threads that have part in this have had of the processors: late work whose threads
  /// lack them does not hang. All zero: time alone decides. Under the lock of the
  /// `device_watchdog`.
  [[nodiscard]] virtual runtime::thread_load load_of(llama::device_work /*what*/) noexcept {
    return {};
  }

 protected:
  ~trouble_listener() = default;
};

/// A `device_watch` with a thread that waits for no device: the generator's, which says what it
/// sends, cannot look while it waits. Tells the metrics, the log and a listener: why something
/// failed is in the log, at most once a second while it is the same. The thread wakes when
/// something is due, a few times a second while there is work, and not at all while there is none.
/// Thread safety: any thread.
class device_watchdog {
 public:
  /// @param counters, listener Must outlive it.
  /// @throws config_error If an option is outside its range.
  device_watchdog(const watch_options& o, chat_metrics& counters, trouble_listener& listener);
  ~device_watchdog();
  device_watchdog(const device_watchdog&) = delete;
  device_watchdog& operator=(const device_watchdog&) = delete;

  void sent(llama::device_work what, time_point now, std::optional<duration> expected) noexcept;
  void returned(llama::device_work what, time_point now) noexcept;
  void failed(llama::device_work what, std::string_view why, time_point now) noexcept;
  /// Whether the device hangs or fails, or has come back so recently that it is not trusted yet.
  /// Waits for nobody.
  [[nodiscard]] device_trouble trouble() const noexcept { return trouble_.load(); }
  /// Whether the device does not come back from something.
  [[nodiscard]] bool is_hanging() {
    const std::lock_guard lock{mutex_};
    return watch_.is_hanging();
  }

 private:
  void run();
  void wake_if_due();
  void show();
  void tell_of_failure(llama::device_work what, std::string_view why, time_point now);

  chat_metrics& counters_;
  trouble_listener& listener_;
  steady_clock clock_;
  std::atomic<device_trouble> trouble_{device_trouble::none};

  std::mutex mutex_;
  std::condition_variable wake_;
  device_watch watch_;
  engine::device_state shown_ = engine::device_state::healthy;
  std::optional<llama::device_work> fails_;  // Took it out, which is to be told.
  std::string last_why_;                     // That was logged,
  time_point last_why_at_ = distant_past;    // then.
  time_point asleep_until_ = never;
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace cohort::chat
