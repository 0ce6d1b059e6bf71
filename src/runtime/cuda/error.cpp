// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/error.hpp>

#include <fmt/format.h>

#include <string_view>

namespace cohort::runtime::cuda {

bool is_sticky(cudaError_t e) noexcept {
  switch (e) {
    case cudaSuccess:
    case cudaErrorNotReady:
    // Errors in the arguments of a call.
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidResourceType:
    case cudaErrorInvalidResourceConfiguration:
    case cudaErrorSymbolNotFound:
    case cudaErrorMissingConfiguration:
    case cudaErrorIllegalState:
    // Errors about resources or capabilities of a device.
    case cudaErrorMemoryAllocation:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorLaunchMaxDepthExceeded:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorNotSupported:
    case cudaErrorNotPermitted:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
    case cudaErrorPeerAccessAlreadyEnabled:
    case cudaErrorPeerAccessNotEnabled:
    case cudaErrorPeerAccessUnsupported:
    // Errors of a capture.
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorGraphExecUpdateFailure:
      return false;
    default:
      return true;
  }
}

std::string describe(cudaError_t e, const char* call) {
  int device = -1;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  return fmt::format("{}: {} ({}){}", call, cudaGetErrorString(e), cudaGetErrorName(e),
                     known ? fmt::format(", device {}", device) : "");
}

void fail(const std::string& what, cudaError_t code, std::source_location where) {
  (void)cudaGetLastError();  // Otherwise a later call of this thread would report it.
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) device = -1;
  const std::string_view file{where.file_name()};
  throw cuda_error{fmt::format("{} at {}:{}", what, file.substr(file.rfind('/') + 1), where.line()),
                   code, device, where};
}

void check(cudaError_t e, const char* call, std::source_location where) {
  if (e != cudaSuccess) fail(describe(e, call), e, where);
}

device_scope::device_scope(int device) noexcept {
  int current = -1;
  error_ = cudaGetDevice(&current);
  if (error_ != cudaSuccess || current == device) return;
  error_ = cudaSetDevice(device);
  if (error_ == cudaSuccess) former_ = current;
}
device_scope::~device_scope() {
  if (former_ >= 0 && cudaSetDevice(former_) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace cohort::runtime::cuda
