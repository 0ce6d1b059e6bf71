// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exception for failed CUDA calls, and the check that throws it.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace cohort::runtime::cuda {

/// A CUDA, driver or cuBLAS call failed. The message names call, error, device and place, on one
/// line.
class cuda_error : public std::runtime_error {
 public:
  /// @param device The device that was current, or -1 if there is none.
  cuda_error(const std::string& what, cudaError_t code, int device, std::source_location where)
      : std::runtime_error{what}, code_{code}, device_{device}, where_{where} {}

  /// `cudaErrorUnknown` for errors of other libraries.
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  cudaError_t code_;
  int device_;
  std::source_location where_;
};

/// Whether an error stays: no later call on the device's context can succeed in this process.
[[nodiscard]] bool is_sticky(cudaError_t e) noexcept;

/// "cudaMalloc: out of memory (cudaErrorMemoryAllocation), device 0".
[[nodiscard]] std::string describe(cudaError_t e, const char* call);

/// Throws for an error that is not sticky after clearing it, so that the next call does not report
/// it again.
/// @throws cuda_error If `e` is not `cudaSuccess`.
void check(cudaError_t e, const char* call,
           std::source_location where = std::source_location::current());

/// Makes a device current for the calling thread, and the former one again when it ends.
/// Cost: some ten nanoseconds if it is current already.
class device_guard {
 public:
  /// @throws cuda_error If there is no such device.
  explicit device_guard(int device);
  ~device_guard();
  device_guard(const device_guard&) = delete;
  device_guard& operator=(const device_guard&) = delete;

 private:
  int former_ = -1;  // -1: nothing to restore.
};

}  // namespace cohort::runtime::cuda
