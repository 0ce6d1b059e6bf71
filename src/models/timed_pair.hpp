// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures times of two models' batches on partitions of one device, alone and side by side.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/engine/measured_model.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "timed_model.hpp"

namespace cohort::models {

/// The models to prepare: two, which may be the same.
struct pair_timing_plan {
  std::array<std::string, 2> models;                ///< As in `timing_plan`.
  std::array<std::uint32_t, 2> max_size{512, 512};  ///< As in `timing_plan`.
  std::array<std::uint32_t, 2> max_batch{1, 1};
  std::uint64_t seed = 0;
};

/// Two models with separate parameters, inputs and memory on one executor. Thread safety: a thread
/// for each side may run it while the other runs; nothing else.
class timed_pair {
 public:
  virtual ~timed_pair() = default;
  /// The executor's device, in a few words.
  [[nodiscard]] virtual std::string device() const = 0;
  /// Replaces the sides' partitions by ones with these shares.
  virtual void place(device_share first, device_share second) = 0;
  /// Runs one batch of a side, 0 or 1, which has been placed. @throws device_error If it fails.
  virtual engine::measurement run(std::size_t side, std::uint32_t batch) = 0;
};

/// @throws config_error If a model is unknown.  @throws resource_error If they do not fit the
/// memory.
[[nodiscard]] std::unique_ptr<timed_pair> pair_on_host(const pair_timing_plan& p);
/// Whether partitions of these shares have no core in common: shares are rounded up to whole cores.
[[nodiscard]] bool are_apart_on_host(device_share first, device_share second);

/// The same on a GPU; also @throws resource_error If there is no GPU, with the reason.
[[nodiscard]] std::unique_ptr<timed_pair> pair_on_gpu(const pair_timing_plan& p);
/// Partitions of a GPU do not overlap as long as they fit it.
[[nodiscard]] inline bool are_apart_on_gpu(device_share first, device_share second) {
  return first.percent() + second.percent() <= 100;
}

}  // namespace cohort::models
