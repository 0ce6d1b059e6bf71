// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a server counts, in the Prometheus text format.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace cohort::serve {

/// What happens to a row of a model's pipeline.
enum class row_event : std::uint8_t {
  made,       ///< Requests became a row.
  stretched,  ///< Requests joined a row that ran.
  split,      ///< A row was divided.
  held,       ///< A row waited for the stragglers behind it.
};

/// Counters and histograms of a server: requests by model and outcome, refusals by reason, batch
/// sizes, latencies, busy time by device, events of pipelines. Thread safety: add models and
/// devices first; then any thread.
class metrics {
 public:
  metrics();
  ~metrics();
  metrics(const metrics&) = delete;
  metrics& operator=(const metrics&) = delete;

  /// Model and device ids must be dense and added in order.
  void add_model(model_id id, const std::string& name);
  void add_device(device_id id);
  /// The model runs as a pipeline. Add the model first.
  void add_pipeline(model_id id, const std::string& name);

  void refused(model_id id, refusal why);
  /// A request ended `latency` after it arrived.
  void ended(model_id id, outcome how, duration latency);
  void dispatched(const dispatch_event& e);
  /// Of a model with a pipeline.
  void happened(model_id id, row_event what);
  void set_waiting(model_id id, double requests);
  /// The model is loaded on a partition, `percent` of a device, which a plan gives `rate_rps`
  /// requests a second; 0 while it is not yet or no longer served there. Any thread, at any time.
  void place(const std::string& model, device_id device, std::uint32_t partition,
             std::uint32_t percent, double rate_rps);
  /// It is unloaded there.
  void unplace(const std::string& model, device_id device, std::uint32_t partition,
               std::uint32_t percent);
  /// A plan was begun, or a step of one failed and is tried again.
  void planned(bool failed);
  /// HTTP answers by status, of every path.
  void answered(int status);

  /// The text of GET /metrics.
  [[nodiscard]] std::string text() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Counts batches as the engine sends them.
struct metrics_observer : null_observer {
  metrics* into = nullptr;
  void dispatched(const dispatch_event& e, time_point) noexcept { into->dispatched(e); }
};
static_assert(observer<metrics_observer>);

}  // namespace cohort::serve
