// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures times of a model's stages on an executor, for profiles.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/engine/measured_model.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "row_cost.hpp"

namespace cohort::models {

/// The model and partitions to prepare.
struct timing_plan {
  std::string model;
  std::vector<device_share> shares;  ///< One for each partition; at least one.
  std::uint32_t max_batch = 1;
  std::uint64_t seed = 0;
  std::uint32_t max_size = 512;  ///< For ONNX files with a dynamic length.
};

/// A model with parameters, input and memory on an executor of its own. Thread safety: none.
class timed_model {
 public:
  virtual ~timed_model() = default;
  [[nodiscard]] virtual std::size_t stages() const noexcept = 0;
  /// Memory of parameters, work space and one batch.
  [[nodiscard]] virtual std::size_t memory_bytes() const noexcept = 0;
  /// The executor's device, in a few words.
  [[nodiscard]] virtual std::string device() const = 0;
  /// The rounded size of a share, in units of the device.
  [[nodiscard]] virtual std::string partition(std::size_t share) const = 0;
  /// Size of the device's last-level cache.
  [[nodiscard]] virtual std::size_t cache_bytes() const noexcept = 0;
  /// Bytes read and written per second by copies of `bytes` (fewer if memory is short), the fastest
  /// of several: the peak for a working set of that size. Not beside other work.
  [[nodiscard]] virtual double copy_rate(std::size_t bytes) = 0;
  /// Cost of rows of up to `max_batch` requests in a pipeline, beside its stages.
  [[nodiscard]] virtual row_cost rows(std::uint32_t max_batch) = 0;
  /// Runs one batch on the partition of a share. @throws device_error If the work fails.
  virtual engine::measurement run(std::size_t share, std::uint32_t batch) = 0;
};

/// @throws config_error If the model is unknown.  @throws resource_error If it does not fit the
/// memory.
[[nodiscard]] std::unique_ptr<timed_model> time_on_host(const timing_plan& p);

/// Why there is no usable GPU, in one line; empty if there is one.
[[nodiscard]] std::string why_no_gpu();

/// The same on a GPU; also @throws resource_error If there is no GPU, with the reason.
[[nodiscard]] std::unique_ptr<timed_model> time_on_gpu(const timing_plan& p);

}  // namespace cohort::models
