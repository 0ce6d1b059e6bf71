// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the server knows of its load and its speed, for /debug/workload and /metrics.
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

/// Asks a service for its state on a thread of its own: one that hangs holds up nobody for long,
/// and after the first who asked, nobody. Thread safety: any thread.
class surveyor {
 public:
  ~surveyor() { end(); }
  /// @param s Lives until `end` has returned.
  void start(model_service& s);
  /// The state as it is now. As it was last if the service does not answer in time, or `end` was
  /// called; nothing if it has none.
  [[nodiscard]] std::optional<service_state> ask() { return look().state; }
  /// How many of its devices hang, in the same way.
  [[nodiscard]] std::size_t hanging_devices() { return look().hanging; }
  /// Does not ask any more. Waits for the service if it is being asked.
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
  bool is_overdue_ = false;  // Somebody waited in vain, and the answer is not there yet.
  bool is_ending_ = false;
  answer last_;
  std::thread thread_;
};

/// Counts what comes, and asks the service what it has learned. Thread safety: `arrived` and
/// `returned` from one thread, the rest from any.
class service_watch {
 public:
  explicit service_watch(const options& o) : options_{o} {}

  /// Before anything else. @param s Outlives it.
  void start(model_service& s);
  /// After anything else but `show`, before the service goes.
  void end() { surveyor_.end(); }

  /// A model has this row from now on; it has got no requests yet. Allocates.
  void meet(model_id row) {
    const std::lock_guard lock{mutex_};
    loads_.resize(std::max<std::size_t>(loads_.size(), row.index() + 1));
    loads_[row.index()] = {};
  }
  /// Requests of one client's call, whether they are accepted or not. O(1), no allocation.
  /// @param m The row of one that was met.
  void arrived(model_id m, std::uint32_t rows, time_point now) noexcept {
    const std::lock_guard lock{mutex_};
    loads_[m.index()].add(now, rows);
  }
  /// A client's request that ran, `after` its end in the engine.
  void returned(duration after) noexcept;

  /// WORKLOAD.json: the server as it is. Nothing, if models lie where a plan says, for which the
  /// format has no place. Waits for the engine, but not for one that hangs: then it is as it was.
  [[nodiscard]] std::optional<std::string> workload(time_point now);
  /// Brings the metrics of what was learned up to date. As `workload`.
  void show(serve::metrics& on);
  /// What the scheduler decides by, if it tunes itself. As `workload`.
  [[nodiscard]] std::optional<deferred::settings> settings();
  /// Devices that do not come back from what they were sent. As `workload`, but with a plan, too.
  [[nodiscard]] std::size_t hanging_devices() { return surveyor_.hanging_devices(); }

 private:
  /// How many devices the present load needs, where a device runs one batch at a time.
  void show_advice(serve::metrics& on, const service_state& known);
  void show_models(serve::metrics& on, const service_state& known);

  const options& options_;
  model_service* service_ = nullptr;
  surveyor surveyor_;
  std::mutex mutex_;  // Of what is below.
  std::vector<arrival_meter> loads_;
  double way_back_ns_ = 0;  // On average over about the last 256.
  double returned_ = 0;
  std::map<model_id, double> shifts_;  // As was told, of those that are served.
};

}  // namespace cohort::inference
