// SPDX-License-Identifier: Apache-2.0
/// @file
/// A packer's problem, and the plan that it returns.
#pragma once

#include <cohort/core/ids.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace cohort::packing {

/// How the worst-case latency of a request follows from its gpu-let: it waits for at most one duty
/// cycle, and then for the end of its batch.
enum class slo_rule : std::uint8_t {
  own,  ///< D + L ≤ SLO: every model keeps a fixed slot in the cycle.
  sum,  ///< D + Σ L ≤ SLO: the batches of all models start together at the end of the cycle.
};

/// The demand and the devices.
struct packing_problem {
  std::uint32_t gpus = 1;  ///< At least 1.
  slo_rule rule = slo_rule::own;
  double memory_mb = std::numeric_limits<double>::infinity();  ///< Memory of one device; above 0.
  std::vector<double> rates_rps{};  ///< By model of the grid; 0 if the model is not served.
};

/// One model's part of a gpu-let: once a duty cycle, one batch of at most this many requests.
struct placed_model {
  model_id model;
  std::uint32_t batch = 1;
  double rate_rps = 0;

  friend bool operator==(const placed_model&, const placed_model&) = default;
};

/// A partition of a device that its models share in time.
struct gpulet {
  device_id gpu;
  device_share size;
  double duty_ms = 0;
  std::vector<placed_model> models{};

  friend bool operator==(const gpulet&, const gpulet&) = default;
};

using plan = std::vector<gpulet>;

enum class packing_status : std::uint8_t {
  feasible,    ///< The plan serves the whole demand.
  infeasible,  ///< Proven: no plan exists.
  unknown,     ///< No plan found, and nothing proven.
};

struct packing_result {
  packing_status status = packing_status::unknown;
  packing::plan plan{};  ///< Empty unless feasible.
  std::string reason{};  ///< Why there is none, in words; empty if feasible.
  /// Proven upper bound on the multiple of the demand that can be served, if any.
  std::optional<double> bound{};

  [[nodiscard]] bool schedulable() const noexcept { return status == packing_status::feasible; }
};

/// Sum of the sizes in use, in percent of one device.
[[nodiscard]] inline std::uint32_t used_pct(const plan& p) noexcept {
  std::uint32_t sum = 0;
  for (const gpulet& g : p) sum += g.size.percent();
  return sum;
}

}  // namespace cohort::packing
