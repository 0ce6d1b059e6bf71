// SPDX-License-Identifier: Apache-2.0
/// @file
/// The steps from one plan to the next, as values.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/packing/model/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace cohort::packing {

using partition_id = strong_id<struct partition_tag>;

/// An existing gpu-let.
struct live_gpulet {
  partition_id id;
  gpulet what;                   ///< With the models that it serves.
  std::vector<model_id> idle{};  ///< Loaded but not served, warm or not.
  bool is_out = false;           ///< It hangs or fails, so it serves no requests.
};

/// One step; each waits for the previous one.
struct transition_step {
  enum class kind : std::uint8_t {
    create,   ///< Make the partition: `gpu`, `size`.
    load,     ///< Load `model` into the partition, ready to run but without traffic.
    warm_up,  ///< Run `model` there once: the first run is slow.
    serve,    ///< From now on the partition serves exactly `models`, once every `duty_ms`.
    drain,    ///< Wait until the partition has finished its requests for `model`.
    unload,   ///< Free the memory of `model` there.
    destroy,  ///< Remove the partition, which holds no model.
  };
  kind what;
  partition_id partition;
  device_id gpu;
  device_share size;
  model_id model{};                    ///< The model to load, warm up, drain or unload.
  double duty_ms = 0;                  ///< Duty cycle, for serve.
  std::vector<placed_model> models{};  ///< Of serve; requests are distributed by their rates.
};

/// The steps to the next plan.
struct transition {
  std::vector<transition_step> steps;
  std::vector<live_gpulet> after;  ///< The gpu-lets at the end.
  std::vector<model_id>
      interrupted;        ///< Models that are temporarily unserved; see `plan_transition`.
  plan left_out{};        ///< Gpu-lets of the next plan without a device, under its ids.
  std::size_t loads = 0;  ///< Models loaded: the cost of a transition.
};

/// Limits that hold at every step.
struct transition_limits {
  std::uint32_t gpus = 1;  ///< At least 1.
  std::uint32_t max_gpulets_per_gpu = 2;
  double memory_mb = std::numeric_limits<double>::infinity();
  /// Devices that stay unchanged: no step touches them, and no gpu-let of the next plan is placed
  /// there. Each below `gpus`.
  std::vector<device_id> set_aside{};

  [[nodiscard]] bool is_set_aside(device_id gpu) const noexcept {
    return std::ranges::find(set_aside, gpu) != set_aside.end();
  }
};

}  // namespace cohort::packing
