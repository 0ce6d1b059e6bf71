// SPDX-License-Identifier: Apache-2.0
// Runs on machines with and without a GPU.
#include <cohort/runtime/cuda/device.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <cstdlib>
#include <string>
#include <support/complaint.hpp>

namespace cohort::runtime::device_test {
namespace {

TEST_CASE("there are devices, or one line says why not") {
  const cuda::inventory found = cuda::find_devices();
  CHECK(found.devices.empty() != found.reason.empty());
  CHECK(found.reason.find('\n') == std::string::npos);
  MESSAGE(found.reason);
  for (const cuda::device_description& d : found.devices) {
    CHECK_FALSE(d.name.empty());
    CHECK(d.multiprocessors > 0);
    CHECK(d.memory_bytes > 0);
    CHECK(d.partition_step * d.partition_steps <= d.multiprocessors);
  }
}
TEST_CASE("an executor without its device is an error with the reason") {
  const cuda::inventory found = cuda::find_devices();
  if (found.devices.empty()) {
    CHECK_THROWS_WITH_AS(cuda_executor{}, ("cuda_executor: " + found.reason).c_str(),
                         resource_error);
  } else {
    const auto beyond = static_cast<int>(found.devices.size());
    CHECK_THROWS_AS((cuda_executor{{.device = beyond}}), config_error);
    CHECK_THROWS_AS((cuda_executor{{.device = -1}}), config_error);
  }
}
TEST_CASE("options outside of their ranges are named before a device is asked for") {
  CHECK(test::gist_of<config_error>([] { (void)cuda_executor{{.pool_bytes = 255}}; }) ==
        "cuda_options: pool_bytes ... at least 256");
  const cuda_options back{.poll_interval = std::chrono::microseconds{-1}};
  CHECK(test::gist_of<config_error>([&] { (void)cuda_executor{back}; }) ==
        "cuda_options: poll_interval ... at least 0");
}
TEST_CASE("where cuBLAS cannot be loaded, one line says why") {
  const std::string& reason = cuda::why_no_blas();
  CHECK(reason.find('\n') == std::string::npos);
  if (!reason.empty()) CHECK_THROWS_WITH_AS(cuda::blas{0}, reason.c_str(), resource_error);
}
TEST_CASE("the share that MPS leaves is read from its variable") {
  constexpr const char* name = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
  unsetenv(name);
  CHECK_FALSE(cuda::mps_share());
  for (const char* wrong : {"", "x", "0", "-5", "101", "50 "}) {
    CAPTURE(wrong);
    setenv(name, wrong, 1);
    CHECK_FALSE(cuda::mps_share());
  }
  setenv(name, "49.6", 1);
  CHECK(cuda::mps_share() == device_share{50});
  unsetenv(name);
  CHECK(cuda::mps_setting(device_share{30}) == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30");
}
TEST_CASE("errors that stay are told from those that do not") {
  CHECK(cuda::is_sticky(cudaErrorIllegalAddress));
  CHECK(cuda::is_sticky(cudaErrorAssert));
  // Of a device or a driver that is gone; an unknown one; one that this header has no name for.
  for (const int lost : {3, 46, 100, 201, 805, 810, 999, 12345}) {
    CAPTURE(lost);
    CHECK(cuda::is_sticky(static_cast<cudaError_t>(lost)));
  }
  for (const cudaError_t own :
       {cudaSuccess, cudaErrorNotReady, cudaErrorMemoryAllocation, cudaErrorInvalidValue,
        cudaErrorInvalidConfiguration, cudaErrorStreamCaptureUnsupported,
        cudaErrorStreamCaptureInvalidated, cudaErrorLaunchOutOfResources}) {
    CAPTURE(cudaGetErrorName(own));
    CHECK_FALSE(cuda::is_sticky(own));
  }
  CHECK_NOTHROW(cuda::check(cudaSuccess, "nothing"));
  try {
    cuda::check(cudaErrorMemoryAllocation, "cudaMalloc");
    FAIL("no exception");
  } catch (const cuda::cuda_error& e) {
    CHECK(e.code() == cudaErrorMemoryAllocation);
    CHECK(std::string{e.what()}.starts_with("cudaMalloc: out of memory (cudaErrorMemoryAlloc"));
    CHECK(std::string{e.where().file_name()}.ends_with("device_test.cpp"));
  }
}
}  // namespace
}  // namespace cohort::runtime::device_test
