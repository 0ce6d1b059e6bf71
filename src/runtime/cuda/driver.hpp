// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver's functions for green contexts, found at run time: programs here do not link the
/// driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

namespace cohort::runtime::cuda {

/// Entry points of the driver. Null pointers if one of them is missing; see `reason`.
struct driver_functions {
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
  decltype(&cuDeviceGetDevResource) device_resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  decltype(&cuGreenCtxGetDevResource) resource_of = nullptr;
  decltype(&cuGreenCtxStreamCreate) make_stream = nullptr;
  // For events on a driver that enforces their context; not mentioned in `reason`.
  decltype(&cuStreamGetCtx) context_of = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
  std::string reason;  ///< Why they are unavailable; else empty.
};

/// Looked up once. Thread safety: any thread.
[[nodiscard]] const driver_functions& driver();

/// @throws cuda_error If `e` is not CUDA_SUCCESS.
void check_driver(CUresult e, const char* call,
                  std::source_location where = std::source_location::current());

}  // namespace cohort::runtime::cuda
