// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a simulation is asked to serve: models, devices and arrivals.
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

/// ℓ(b), as a user gives it.
using latency_spec = std::variant<linear_latency, table_latency>;

/// How requests arrive.
enum class arrival_process : std::uint8_t {
  poisson,
  gamma,    ///< Gamma-distributed gaps of the given shape: the smaller, the burstier.
  uniform,  ///< Constant gaps, a random phase for each model.
  trace,    ///< Given instants.
};

/// How one model's requests arrive, whatever the others' do.
struct own_arrivals {
  arrival_process process = arrival_process::poisson;  ///< Not a trace.
  double shape = 1;                                    ///< Of gamma gaps; above 0.
};

/// One model of a workload.
struct model_spec {
  std::string name;
  latency_spec latency;
  duration slo;
  double share = 1;             ///< Part of the offered rate if popularity is `given`; at least 0.
  std::uint32_t max_batch = 0;  ///< Largest batch; 0: as large as the SLO allows.
  std::uint32_t queue_capacity = 0;        ///< Requests that may wait; 0: all.
  std::optional<own_arrivals> arrivals{};  ///< Instead of the workload's, unless that is a trace.

  [[nodiscard]] duration latency_of(std::uint32_t batch) const noexcept {
    return std::visit([batch](const auto& l) { return l(batch); }, latency);
  }
};

/// Some of the devices, and the models that run there and nowhere else.
struct pool_spec {
  std::string name;
  std::uint32_t devices = 0;            ///< At least 1. Pools take them in order of their ids.
  std::vector<std::uint32_t> models{};  ///< Indices into workload::models; at least one.
};

/// Some of the devices, on which batches take `factor` times as long as profiles say.
struct device_class {
  std::string name;
  std::uint32_t count = 0;  ///< At least 1. Classes take devices in order of their ids.
  double factor = 1;        ///< Above 0.
};

/// How the offered rate is divided over the models.
enum class popularity : std::uint8_t { given, equal, zipf };

/// One arrival of a trace.
struct trace_row {
  time_point at;
  std::uint32_t model;  ///< Index into workload::models.
};

/// By what a workload is served where nothing else is asked for: values of the options of these
/// names, as a user would write them. Empty: not said.
struct policy_values {
  std::string name;
  std::string gather;
  std::string tune;
  std::string objective;
  std::string fairness;
  std::string window;
  std::string quantile;
};

/// The whole of it. Fields have the meaning and defaults of the command line's WORKLOAD.json.
struct workload {
  std::uint32_t devices = 1;
  std::vector<model_spec> models;
  arrival_process arrivals = arrival_process::poisson;
  double shape = 1;  ///< Of gamma gaps; above 0.
  std::vector<trace_row> trace;
  double rate = 0;  ///< Requests a second over all models if no other is asked for; 0: not said.
  policy_values policy;
  popularity shares = popularity::given;
  double zipf_exponent = 0.9;
  duration warmup = std::chrono::seconds{2};
  duration measured = std::chrono::seconds{20};
  std::vector<pool_spec> pools;  ///< Each model in one; none: all models run on all devices.
  std::vector<device_class>
      classes;  ///< Which policies are not told of; none: all are as profiled.
  deferred::network_delays network;
  network_jitter jitter;  ///< Of the way to devices.
  /// What policies leave of each deadline for `network.response`; without it, just that.
  std::optional<duration> response_margin;
  cohort::reality reality;  ///< How devices and timers differ from what policies are told.
  load_steps load;          ///< Of the offered rate; not for traces.

  /// The delays that policies are told of.
  [[nodiscard]] deferred::network_delays told_delays() const noexcept {
    deferred::network_delays told = network;
    if (response_margin) told.response = *response_margin;
    return told;
  }

  /// Each model's part of the offered rate; sums to 1.
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

/// The largest batch that is worth a table entry: the model's limit, or what its SLO allows alone.
[[nodiscard]] inline std::uint32_t effective_max_batch(const model_spec& m) noexcept {
  constexpr std::uint32_t most = 1U << 16U;  // Only where latency hardly grows with the batch.
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
