// SPDX-License-Identifier: Apache-2.0
/// @file
/// The server's load and speed, for /debug/workload and /metrics.
#pragma once

#include <cohort/core/arrival_meter.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/settings.hpp>
#include <cohort/serve/metrics.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "model_service.hpp"
#include "options.hpp"

namespace cohort::inference {

/// Asks a service for its state on a separate thread. A service that hangs delays the first caller
/// briefly and later ones not at all. Thread safety: any thread.
class surveyor {
 public:
  ~surveyor() { end(); }
  /// @param s Must live until `end` has returned.
  void start(model_service& s);
  /// The present state, or the last known one if the service does not answer in time or `end` was
  /// called; nothing if there is none.
  [[nodiscard]] std::optional<service_state> ask() { return look().state; }
  /// The number of its devices that hang, in the same way.
  [[nodiscard]] std::size_t hanging_devices() { return look().hanging; }
  /// Stops asking. Waits for the service if a call is in progress.
  void end();

 private:
  struct answer {
    std::optional<service_state> state;
    std::size_t hanging = 0;
  };

  [[nodiscard]] answer look();
  void run();

  model_service* service_ = nullptr;
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::condition_variable told_;
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  bool is_overdue_ = false;  // A call timed out and has not been answered since.
  bool is_ending_ = false;
  answer last_;
  std::thread thread_;
};

/// Counts arrivals, and asks the service for its measurements. Thread safety: `arrived` and
/// `returned` from one thread, the rest from any.
class service_watch {
 public:
  explicit service_watch(const options& o) : options_{o} {}

  /// Call it first. @param s Must outlive this.
  void start(model_service& s);
  /// Call it last, except for `show`, and before the service is destroyed.
  void end() { surveyor_.end(); }

  /// Assigns the row to a new model without requests. Allocates.
  void meet(model_id row) {
    const std::lock_guard lock{mutex_};
    loads_.resize(std::max<std::size_t>(loads_.size(), row.index() + 1));
    loads_[row.index()] = {};
  }
  /// Counts requests of one client's call, accepted or not. O(1), no allocation.
  /// @param m A row passed to `meet`.
  void arrived(model_id m, std::uint32_t rows, time_point now) noexcept {
    const std::lock_guard lock{mutex_};
    loads_[m.index()].add(now, rows);
  }
  /// A client's request was answered, `after` its end in the engine.
  void returned(duration after) noexcept;

  /// The present server as WORKLOAD.json; nothing with a plan, which the format cannot express.
  /// Waits for the engine, but if that hangs uses its last known state.
  [[nodiscard]] std::optional<std::string> workload(time_point now);
  /// Updates the metrics of learned values. As `workload`.
  void show(serve::metrics& on);
  /// The present settings of a self-tuning scheduler. As `workload`.
  [[nodiscard]] std::optional<deferred::settings> settings();
  /// Number of devices that do not return from their work. As `workload`, but also with a plan.
  [[nodiscard]] std::size_t hanging_devices() { return surveyor_.hanging_devices(); }

 private:
  /// Shows how many devices the present load needs if each runs one batch at a time.
  void show_advice(serve::metrics& on, const service_state& known);
  void show_models(serve::metrics& on, const service_state& known);

  const options& options_;
  model_service* service_ = nullptr;
  surveyor surveyor_;
  std::mutex mutex_;  // Guards the members below.
  std::vector<arrival_meter> loads_;
  double way_back_ns_ = 0;  // Moving average of about 256 requests.
  double returned_ = 0;
  std::map<model_id, double> shifts_;  // As reported, of the models that are served.
};

}  // namespace cohort::inference
