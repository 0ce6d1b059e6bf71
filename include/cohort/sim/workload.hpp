// SPDX-License-Identifier: Apache-2.0
/// @file
/// A simulated workload: models, devices and arrivals.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>
#include <cohort/sim/load_steps.hpp>
#include <cohort/sim/network_jitter.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cohort::sim {

/// ℓ(b), as written by a user.
using latency_spec = std::variant<linear_latency, table_latency>;

/// How requests arrive.
enum class arrival_process : std::uint8_t {
  poisson,
  gamma,    ///< Gamma-distributed gaps of the given shape: smaller is burstier.
  uniform,  ///< Constant gaps, a random phase for each model.
  trace,    ///< Given instants.
};

/// One model's own arrival process.
struct own_arrivals {
  arrival_process process = arrival_process::poisson;  ///< Not `trace`.
  double shape = 1;                                    ///< Of gamma gaps; above 0.
};

/// One model of a workload.
struct model_spec {
  std::string name;
  latency_spec latency;
  duration slo;
  double share = 1;             ///< Fraction of the offered rate if popularity is `given`; ≥ 0.
  std::uint32_t max_batch = 0;  ///< Largest batch; 0: as large as the SLO allows.
  std::uint32_t queue_capacity = 0;        ///< Maximum waiting requests; 0: no limit.
  std::optional<own_arrivals> arrivals{};  ///< Override the workload's, unless that is a trace.

  [[nodiscard]] duration latency_of(std::uint32_t batch) const noexcept {
    return std::visit([batch](const auto& l) { return l(batch); }, latency);
  }
};

/// Some of the devices, and the models that run only there.
struct pool_spec {
  std::string name;
  std::uint32_t devices = 0;            ///< At least 1. Pools take them in order of their ids.
  std::vector<std::uint32_t> models{};  ///< Indices into workload::models; at least one.
};

/// Some of the devices; their batches take `factor` times the profiled time.
struct device_class {
  std::string name;
  std::uint32_t count = 0;  ///< At least 1. Classes take devices in order of their ids.
  double factor = 1;        ///< Above 0.
};

/// Distribution of the offered rate over the models.
enum class popularity : std::uint8_t { given, equal, zipf };

/// One arrival of a trace.
struct trace_row {
  time_point at;
  std::uint32_t model;  ///< Index into workload::models.
};

/// Default policies of the workload: values of command-line options with these names, or empty.
struct policy_values {
  std::string name;
  std::string gather;
  std::string tune;
  std::string objective;
  std::string fairness;
  std::string window;
  std::string quantile;
};

/// A whole workload. Fields have the meaning and defaults of the command line's WORKLOAD.json.
struct workload {
  std::uint32_t devices = 1;
  std::vector<model_spec> models;
  arrival_process arrivals = arrival_process::poisson;
  double shape = 1;  ///< Of gamma gaps; above 0.
  std::vector<trace_row> trace;
  double rate = 0;  ///< Default total requests per second; 0: not set.
  policy_values policy;
  popularity shares = popularity::given;
  double zipf_exponent = 0.9;
  duration warmup = std::chrono::seconds{2};
  duration measured = std::chrono::seconds{20};
  std::vector<pool_spec> pools;  ///< Each model in one; none: all models run on all devices.
  std::vector<device_class>
      classes;  ///< Policies do not know these factors; none: all are as profiled.
  deferred::network_delays network;
  network_jitter jitter;  ///< Jitter of messages to devices.
  /// Time that policies subtract from each deadline for the response; default `network.response`.
  std::optional<duration> response_margin;
  cohort::reality reality;  ///< Perturbations of devices and timers that policies do not know.
  load_steps load;          ///< Steps of the offered rate; not for traces.

  /// The delays known to policies.
  [[nodiscard]] deferred::network_delays told_delays() const noexcept {
    deferred::network_delays told = network;
    if (response_margin) told.response = *response_margin;
    return told;
  }

  /// Each model's fraction of the offered rate; they sum to 1.
  [[nodiscard]] std::vector<double> normalised_shares() const {
    std::vector<double> part(models.size());
    double sum = 0;
    for (std::size_t i = 0; i < models.size(); ++i) {
      switch (shares) {
        case popularity::given:
          part[i] = models[i].share;
          break;
        case popularity::equal:
          part[i] = 1;
          break;
        case popularity::zipf:
          part[i] = std::pow(static_cast<double>(i + 1), -zipf_exponent);
          break;
      }
      sum += part[i];
    }
    for (double& p : part) p /= sum;
    return part;
  }
};

/// The largest useful batch: the model's limit, or the largest that its SLO allows alone.
[[nodiscard]] inline std::uint32_t effective_max_batch(const model_spec& m) noexcept {
  constexpr std::uint32_t most = 1U << 16U;  // Only if latency hardly grows with the batch.
  if (m.max_batch > 0) return std::min(m.max_batch, most);
  std::uint32_t low = 1;
  std::uint32_t high = most;
  while (low < high) {
    const std::uint32_t middle = low + (high - low + 1) / 2;
    if (m.latency_of(middle) <= m.slo) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace cohort::sim
