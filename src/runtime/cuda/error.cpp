// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/error.hpp>

#include <fmt/format.h>

namespace cohort::runtime::cuda {

bool is_sticky(cudaError_t e) noexcept {
  switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorCudartUnloading:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

std::string describe(cudaError_t e, const char* call) {
  int device = -1;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  return fmt::format("{}: {} ({}){}", call, cudaGetErrorString(e), cudaGetErrorName(e),
                     known ? fmt::format(", device {}", device) : "");
}

void check(cudaError_t e, const char* call, std::source_location where) {
  if (e == cudaSuccess) return;
  (void)cudaGetLastError();
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  throw cuda_error{describe(e, call), e, device, where};
}

device_guard::device_guard(int device) {
  int current = -1;
  check(cudaGetDevice(&current), "cudaGetDevice");
  if (current == device) return;
  check(cudaSetDevice(device), "cudaSetDevice");
  former_ = current;
}
device_guard::~device_guard() {
  if (former_ >= 0) (void)cudaSetDevice(former_);
}

}  // namespace cohort::runtime::cuda
