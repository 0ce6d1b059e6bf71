// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the server counts and says of its engine's decisions: `service_observer`.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/serve/metrics.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <serve/log.hpp>
#include <string>
#include <string_view>

namespace cohort::inference {

/// Tells whoever reads the log that a device is out of service, or back. On the loop's thread.
/// @param partition Of the device, if it is only that.
inline void log_device(device_id d, engine::device_state s, std::string_view why,
                       std::optional<device_id> partition = {}) noexcept {
  try {
    const std::string part = partition ? fmt::format("partition {}: ", partition->value()) : "";
    const auto level = s == engine::device_state::healthy   ? serve::severity::info
                       : s == engine::device_state::suspect ? serve::severity::warning
                                                            : serve::severity::error;
    serve::log_line(level,
                    fmt::format("device {}: {}{}: {}", d.value(), part, engine::to_string(s), why));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // No memory for a line; the metrics have it.
  }
}

/// Tells whoever reads the log why batches of a device fail; what is repeated, once a second. Any
/// thread.
class failure_log {
 public:
  void operator()(device_id d, std::string_view why) noexcept {
    try {
      const std::lock_guard lock{mutex_};
      line& last = lines_[d.value()];
      const time_point now = steady_clock{}.now();
      if (last.why == why && now - last.at < std::chrono::seconds{1}) return;
      last.why = why;
      last.at = now;
      serve::log_warning(fmt::format("device {}: a batch failed: {}", d.value(), why));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // As above.
    }
  }

 private:
  struct line {
    std::string why;
    time_point at = distant_past;
  };
  std::mutex mutex_;
  std::map<std::uint32_t, line> lines_;  // By device.
};

/// Counts batches, retries, and devices that go out of service and come back.
struct service_observer : serve::metrics_observer {
  std::atomic<std::uint32_t>* out_of_service = nullptr;  // So many devices.
  void device_changed(device_id d, engine::device_state s, std::string_view why,
                      time_point) const noexcept {
    s == engine::device_state::healthy ? --*out_of_service : ++*out_of_service;
    into->device_changes.add(1, d.index(), s == engine::device_state::healthy ? 1 : 0);
    log_device(d, s, why);
  }
};

}  // namespace cohort::inference
