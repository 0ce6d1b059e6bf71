// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measurements of one run in virtual time.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/deferred/autoscale.hpp>
#include <cohort/deferred/twin/tuner.hpp>
#include <cohort/sim/reality_record.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace cohort::sim {

/// Latency of a request that was never served.
inline constexpr double infinitely_late = std::numeric_limits<double>::infinity();

/// One batch of a run.
struct dispatch_record {
  time_point at;  ///< When it was dispatched.
  std::uint32_t device;
  std::uint32_t model;
  std::uint32_t size;
  std::uint64_t first;                  ///< Sequence number of its first request.
  time_point exec_at;                   ///< Its start on the device.
  time_point latest;                    ///< Latest start that would have met its earliest deadline.
  time_point finish;                    ///< Its end on the device; `never` if that hangs.
  std::vector<std::uint64_t> requests;  ///< Sequence numbers of all.
};

/// One model's part of a run. Percentiles are by nearest rank.
struct model_result {
  std::string name;
  double offered_rps = 0;
  std::uint64_t arrived = 0;
  std::uint64_t completed = 0;
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;  ///< Includes requests that failed.
  std::uint64_t refused = 0;  ///< On arrival, because they would be late.
  std::uint64_t open = 0;     ///< Not ended when the run stopped; 0 after a whole run.
  double bad_rate = 0;        ///< 1 - completed / arrived; 0 if none arrived.
  double p99_ms = 0;
  std::uint32_t batch_p50 = 0;
};

/// One run. Counts are for requests that arrived in the measured part.
struct run_result {
  double offered_rps = 0;
  std::uint64_t arrived = 0;
  std::uint64_t completed = 0;  ///< In time.
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t refused = 0;
  std::uint64_t open = 0;
  double bad_rate = 0;
  double throughput_rps = 0;  ///< Completed in time, per second of the measured part.
  double busy_fraction = 0;   ///< Fraction of device time in the measured part.
  std::uint32_t devices_used = 0;
  double batch_mean = 0;  ///< Over the batches sent in the measured part.
  std::uint32_t batch_p50 = 0;
  std::uint32_t batch_p90 = 0;
  double queueing_p50_ms = 0;  ///< Arrival to start, for requests that ran.
  double queueing_p99_ms = 0;
  double queueing_max_ms = 0;
  double latency_p50_ms = 0;  ///< Arrival to end; `infinitely_late` if that is a dropped one.
  double latency_p90_ms = 0;
  double latency_p99_ms = 0;
  double served_p50_ms = 0;  ///< The same for requests that ran.
  double served_p90_ms = 0;
  double served_p99_ms = 0;
  deferred::autoscale_advice advice;
  std::vector<model_result> per_model;
  std::vector<dispatch_record> dispatches;          ///< Of the whole run, if requested.
  std::uint64_t simulated_requests = 0;             ///< Warm-up and run-out included.
  std::optional<reality_record> drawn;              ///< If the workload has a reality.
  std::vector<deferred::settings_change> settings;  ///< If the scheduler tunes itself.
};

}  // namespace cohort::sim
