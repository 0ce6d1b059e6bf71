// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long the stages of a model take on an executor, for profiles.
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

/// What to make ready.
struct timing_plan {
  std::string model;
  std::vector<device_share> shares;  ///< A partition each; at least one.
  std::uint32_t max_batch = 1;
  std::uint64_t seed = 0;
  std::uint32_t max_size = 512;  ///< Of requests of a file of ONNX with a dynamic length.
};

/// A model with parameters, input and memory on an executor of its own. Thread safety: none.
class timed_model {
 public:
  virtual ~timed_model() = default;
  [[nodiscard]] virtual std::size_t stages() const noexcept = 0;
  /// Memory of parameters, work space and one batch.
  [[nodiscard]] virtual std::size_t memory_bytes() const noexcept = 0;
  /// What it runs on, in a few words.
  [[nodiscard]] virtual std::string device() const = 0;
  /// What a share was rounded to, in units of the device.
  [[nodiscard]] virtual std::string partition(std::size_t share) const = 0;
  /// Of the device's last cache.
  [[nodiscard]] virtual std::size_t cache_bytes() const noexcept = 0;
  /// Bytes read and written in a second by copies of `bytes` (less if memory is short), the fastest
  /// of several: the peak of what serves a working set of that size. Not for work beside others.
  [[nodiscard]] virtual double copy_rate(std::size_t bytes) = 0;
  /// What rows of up to `max_batch` requests cost a pipeline beside its stages.
  [[nodiscard]] virtual row_cost rows(std::uint32_t max_batch) = 0;
  /// Runs one batch on the partition of a share. @throws device_error If the work fails.
  virtual engine::measurement run(std::size_t share, std::uint32_t batch) = 0;
};

/// @throws config_error If the model is unknown.  @throws resource_error If it does not fit the
/// memory.
[[nodiscard]] std::unique_ptr<timed_model> time_on_host(const timing_plan& p);

/// Why there is no GPU to run on, on one line; empty if there is one.
[[nodiscard]] std::string why_no_gpu();

/// The same; also @throws resource_error If there is no GPU, with the reason.
[[nodiscard]] std::unique_ptr<timed_model> time_on_gpu(const timing_plan& p);

}  // namespace cohort::models
