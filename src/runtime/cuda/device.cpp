// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/partition.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace cohort::runtime::cuda {
namespace {

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  (void)cudaGetLastError();
  return 0;
}

device_description describe_device(int index) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties");
  device_description d{.index = index,
                       .name = p.name,
                       .compute_major = p.major,
                       .compute_minor = p.minor,
                       .multiprocessors = static_cast<unsigned>(p.multiProcessorCount),
                       .memory_bytes = p.totalGlobalMem,
                       .l2_bytes = static_cast<std::size_t>(p.l2CacheSize)};
  const double clock_khz = attribute(cudaDevAttrMemoryClockRate, index);
  const double bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, index);
  d.bandwidth_gb_s = 2 * clock_khz * 1e3 * bus_bits / 8 / 1e9;  // Two transfers a clock.
  const auto parts = partitioner::make(index);
  d.partition_step = parts->step();
  d.partition_steps = parts->steps();
  return d;
}

}  // namespace

inventory find_devices() {
  inventory found;
  int driver_version = 0;
  int runtime_version = 0;
  (void)cudaDriverGetVersion(&driver_version);
  (void)cudaRuntimeGetVersion(&runtime_version);
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e != cudaSuccess) (void)cudaGetLastError();
  if (driver_version == 0) {
    found.reason = "no NVIDIA driver";
  } else if (e == cudaErrorInsufficientDriver) {
    found.reason = fmt::format("the NVIDIA driver is for CUDA {}, this program needs {} or later",
                               version(driver_version), version(runtime_version));
  } else if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0)) {
    found.reason = "no CUDA device";
  } else if (e != cudaSuccess) {
    found.reason = describe(e, "cudaGetDeviceCount");
  }
  if (!found.reason.empty()) return found;
  for (int i = 0; i < count; ++i) {
    try {
      found.devices.push_back(describe_device(i));
    } catch (const cuda_error& failed) {  // The others remain usable.
      found.reason = failed.what();
    }
  }
  if (!found.devices.empty()) found.reason.clear();
  return found;
}

std::optional<device_share> mps_share() {
  const char* set = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (set == nullptr) return std::nullopt;
  double percent = 0;
  const std::string_view text{set};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (!(percent > 0) || percent > 100) return std::nullopt;
  return device_share{static_cast<unsigned>(std::max(1.0, std::round(percent)))};
}

std::string mps_setting(device_share share) {
  return fmt::format("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={}", share.percent());
}

}  // namespace cohort::runtime::cuda
