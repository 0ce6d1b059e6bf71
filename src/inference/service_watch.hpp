// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the server knows of its load and its speed, for /debug/workload and /metrics.
#pragma once

#include <cohort/core/arrival_meter.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/quantile_sketch.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/settings.hpp>
#include <cohort/serve/metrics.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model_service.hpp"
#include "options.hpp"

namespace cohort::inference {

/// Counts what comes, and asks the service what it has learned. On the HTTP server's thread.
class service_watch {
 public:
  explicit service_watch(const options& o) : options_{o} {}

  /// Before anything else. @param s Outlives it.
  void start(model_service& s);

  /// Requests of one client's call, whether they are accepted or not. O(1), no allocation.
  void arrived(model_id m, std::uint32_t rows, time_point now) noexcept {
    loads_[m.index()].add(now, rows);
  }
  /// A client's request that ran, `latency` after it came and `after` its end in the engine.
  void returned(duration latency, duration after) noexcept;

  /// WORKLOAD.json: the server as it is. Nothing, if models lie where a plan says, for which the
  /// format has no place. Waits for the engine: not while draining.
  [[nodiscard]] std::optional<std::string> workload(time_point now);
  /// Brings the metrics of what was learned up to date. As `workload`.
  void show(serve::metrics& on);
  /// What the scheduler decides by, if it tunes itself. As `workload`.
  [[nodiscard]] std::optional<deferred::settings> settings();

 private:
  const options& options_;
  model_service* service_ = nullptr;
  std::vector<arrival_meter> loads_;
  quantile_sketch latencies_{{.lowest = 1e-5, .highest = 1e3}, 16384};  // Seconds, of all models.
  double way_back_ns_ = 0;  // On average over about the last 256.
  double returned_ = 0;
};

}  // namespace cohort::inference
