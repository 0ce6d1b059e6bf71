// SPDX-License-Identifier: Apache-2.0
// Tests that need a GPU: without one they are skipped, and say why.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <cohort/runtime/cuda/device.hpp>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  constexpr int skipped = 77;  // What CTest takes for it.
  // Streams that share a queue of the hardware would wait for each other where tests hold one.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const cohort::runtime::cuda::inventory found = cohort::runtime::cuda::find_devices();
  if (found.devices.empty()) {
    std::printf("skipped: %s\n", found.reason.c_str());
    return skipped;
  }
  return doctest::Context{argc, argv}.run();
}
