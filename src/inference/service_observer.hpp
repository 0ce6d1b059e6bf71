// SPDX-License-Identifier: Apache-2.0
/// @file
/// Metrics and log lines for the engine's decisions: `service_observer`.
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
#include <memory>
#include <mutex>
#include <optional>
#include <serve/log.hpp>
#include <string>
#include <string_view>

namespace cohort::inference {

/// Reason of a suspension.
inline constexpr const char* suspends_by = "its requests made devices hang or fail";

/// Reason why a device stays out of service.
inline constexpr const char* hung_probe = "a probe hangs";

/// Logs that a device is out of service, or back. On the loop's thread.
/// @param partition Partition of the device, if only that is affected.
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
    // No memory for a log line; the metrics have it.
  }
}

/// Logs why batches of a device fail; a repeated reason at most once a second. Any thread.
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

/// The models suspended because their requests made devices hang or fail. Thread safety: any.
class suspensions {
 public:
  /// Only ids below this are tracked here; the engine refuses requests for the others.
  static constexpr std::size_t most = 4096;

  /// Adds a new model, possibly under a reused id.
  void add(model_id m, const std::string& name) {
    if (m.index() >= most) return;
    until_[m.index()].store(0, std::memory_order_relaxed);
    const std::lock_guard lock{mutex_};
    names_[m.value()] = name;
  }
  /// Marks a model as suspended, and logs it.
  void note(model_id m, duration lasts) noexcept {
    if (m.index() >= most) return;
    until_[m.index()].store(count(lasts), std::memory_order_relaxed);
    try {
      const std::lock_guard lock{mutex_};
      serve::log_warning(fmt::format("model '{}': suspended for {:.0f} s: {}", names_[m.value()],
                                     to_seconds(lasts), suspends_by));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // As above.
    }
  }
  [[nodiscard]] bool has(model_id m) const noexcept {
    if (m.index() >= most) return false;
    const std::int64_t until = until_[m.index()].load(std::memory_order_relaxed);
    return until != 0 && count(duration{0}) < until;
  }

 private:
  /// The time `later` from now.
  [[nodiscard]] static std::int64_t count(duration later) noexcept {
    return (steady_clock{}.now() + later).time_since_epoch().count();
  }
  std::unique_ptr<std::atomic<std::int64_t>[]> until_ =
      std::make_unique<std::atomic<std::int64_t>[]>(most);
  std::mutex mutex_;
  std::map<std::uint32_t, std::string> names_;
};

/// Counts batches, retries, and devices that go out of service and come back.
struct service_observer : serve::metrics_observer {
  std::atomic<std::uint32_t>* out_of_service = nullptr;  // Number of devices.
  void device_changed(device_id d, engine::device_state s, std::string_view why,
                      time_point) const noexcept {
    s == engine::device_state::healthy ? --*out_of_service : ++*out_of_service;
    into->device_changes.add(1, d.index(), s == engine::device_state::healthy ? 1 : 0);
    log_device(d, s, why);
  }
  void probe_hung(device_id d, time_point) const noexcept {
    into->hung_probes.add(1, d.index());
    log_device(d, engine::device_state::quarantined, hung_probe);
  }
  suspensions* suspended = nullptr;
  void model_suspended(model_id m, duration lasts, time_point) const noexcept {
    suspended->note(m, lasts);
    into->suspensions.add(1, m.index());
  }
};

}  // namespace cohort::inference
