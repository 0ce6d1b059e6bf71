// SPDX-License-Identifier: Apache-2.0
// A user's program with the CUDA executor: it starts on machines without a driver, too.
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <cstdio>

int main() {
  const auto found = cohort::runtime::cuda::find_devices();
  std::printf("%zu devices%s%s\n", found.devices.size(), found.reason.empty() ? "" : ": ",
              found.reason.c_str());
  if (found.devices.empty()) return found.reason.empty() ? 1 : 0;
  cohort::runtime::cuda_executor e{{.pool_bytes = 1 << 20, .workspace_bytes = 0}};
  return e.free_bytes() == 1 << 20 ? 0 : 1;
}
