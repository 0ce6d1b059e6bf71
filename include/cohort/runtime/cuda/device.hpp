// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the GPUs of this machine, or the reason why there is none.
#pragma once

#include <cohort/core/ids.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cohort::runtime::cuda {

/// Properties of a GPU that packing models onto it needs.
struct device_description {
  int index = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  unsigned multiprocessors = 0;
  /// SMs of the smallest partition, and of the steps between sizes; 0 if it cannot be partitioned.
  unsigned partition_step = 0;
  /// How many such steps a device divides into.
  unsigned partition_steps = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  double bandwidth_gb_s = 0;  ///< Of device memory, from clock and bus width; 0 if unknown.
};

/// The GPUs that can be used.
struct inventory {
  std::vector<device_description> devices;
  std::string reason;  ///< Why there are none, on one line; empty if there are some.
};

/// Looks for GPUs. Works, and says so, without a driver, with one that is too old, and without a
/// device; loads nothing that a machine without a GPU lacks.
[[nodiscard]] inventory find_devices();

/// The share of each device that MPS leaves to this process (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE),
/// if it is limited: the way to partition a device among processes where there are no green
/// contexts.
[[nodiscard]] std::optional<device_share> mps_share();

/// The environment variable that limits a process to start to `share`: "NAME=value".
[[nodiscard]] std::string mps_setting(device_share share);

}  // namespace cohort::runtime::cuda
