// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exception for failed CUDA calls, and the check that throws it.
#pragma once

#include <cuda_runtime_api.h>

#include <cohort/core/error.hpp>

#include <source_location>
#include <string>

namespace cohort::runtime::cuda {

/// A CUDA, driver or cuBLAS call failed. The message names call, error, device and place, on one
/// line.
class cuda_error : public device_error {
 public:
  /// @param device The device that was current, or -1 if there is none.
  cuda_error(const std::string& what, cudaError_t code, int device, std::source_location where)
      : device_error{what, where}, code_{code}, device_{device} {}

  /// For errors of the driver and of cuBLAS: the runtime's error for the device, or else
  /// `cudaErrorInvalidValue`.
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  cudaError_t code_;
  int device_;
};

/// Whether an error counts as the loss of the device in this process: every error but "not ready"
/// and those about a call's arguments, about memory and other limits, and about a capture. So an
/// unknown error ends waiting work instead of leaving it to wait for ever.
[[nodiscard]] bool is_sticky(cudaError_t e) noexcept;

/// "cudaMalloc: out of memory (cudaErrorMemoryAllocation), device 0".
[[nodiscard]] std::string describe(cudaError_t e, const char* call);

/// Clears the thread's last error and throws.
/// @throws cuda_error With `what` and the place.
[[noreturn]] void fail(const std::string& what, cudaError_t code,
                       std::source_location where = std::source_location::current());

/// @throws cuda_error If `e` is not `cudaSuccess`, after clearing it: CUDA remembers the last error
/// for each thread, not for each device, and would report it again from a call for another one.
void check(cudaError_t e, const char* call,
           std::source_location where = std::source_location::current());

/// Makes a device current for the calling thread, and the former one again when it ends.
/// Cost: some ten nanoseconds if it is current already.
class device_scope {
 public:
  explicit device_scope(int device) noexcept;
  ~device_scope();
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  /// Why the device is not current; `cudaSuccess` if it is.
  [[nodiscard]] cudaError_t error() const noexcept { return error_; }

 private:
  int former_ = -1;  // -1: nothing to restore.
  cudaError_t error_;
};

/// As above, for where exceptions are allowed.
class device_guard {
 public:
  /// @throws cuda_error If there is no such device, or it has failed.
  explicit device_guard(int device) : scope_{device} { check(scope_.error(), "cudaSetDevice"); }

 private:
  device_scope scope_;
};

}  // namespace cohort::runtime::cuda
