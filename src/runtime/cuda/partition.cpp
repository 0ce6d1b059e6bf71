// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/partition.hpp>

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "driver.hpp"

namespace cohort::runtime::cuda {
namespace {

template <class Function>
void look_up(Function& into, const char* name, std::string& missing, unsigned version = 12050) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how{};
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &how);
  if (e != cudaSuccess) (void)cudaGetLastError();
  if (e != cudaSuccess || how != cudaDriverEntryPointSuccess || found == nullptr) {
    if (missing.empty()) missing = name;
    return;
  }
  into = reinterpret_cast<Function>(found);
}

driver_functions look_up_all() {
  driver_functions f;
  std::string missing;  // From 12.5, the first with green context streams.
  look_up(f.device_get, "cuDeviceGet", missing);
  look_up(f.error_name, "cuGetErrorName", missing);
  look_up(f.device_resource, "cuDeviceGetDevResource", missing);
  look_up(f.split, "cuDevSmResourceSplitByCount", missing);
  look_up(f.describe, "cuDevResourceGenerateDesc", missing);
  look_up(f.create, "cuGreenCtxCreate", missing);
  look_up(f.destroy, "cuGreenCtxDestroy", missing);
  look_up(f.resource_of, "cuGreenCtxGetDevResource", missing);
  look_up(f.make_stream, "cuGreenCtxStreamCreate", missing);
  if (!missing.empty()) {
    f.reason = fmt::format(
        "the driver has no green contexts ({} is missing, 12.5 or later is needed); to divide a "
        "device among processes, start them with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        missing);
  }
  std::string others;
  look_up(f.context_of, "cuStreamGetCtx", others,
          9020);  // From 12.5 the name has one more parameter.
  look_up(f.push, "cuCtxPushCurrent", others);
  look_up(f.pop, "cuCtxPopCurrent", others);
  return f;
}

/// The smallest partition.
unsigned least_step(int device, [[maybe_unused]] const CUdevResource& all) {
#if CUDA_VERSION >= 13000
  if (all.sm.minSmPartitionSize > 0) return all.sm.minSmPartitionSize;
#endif
  // Before CUDA 13 only the driver's documentation says.
  int major = 0;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9 ? 8 : major == 8 ? 4 : 2;
}

}  // namespace

const driver_functions& driver() {
  static const driver_functions functions = look_up_all();
  return functions;
}

void check_driver(CUresult e, const char* call, std::source_location where) {
  if (e == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (driver().error_name != nullptr) (void)driver().error_name(e, &name);
  const cudaError_t state = cudaPeekAtLastError();
  fail(fmt::format("{}: {}", call, name != nullptr ? name : "unknown error"),
       is_sticky(state) ? state : cudaErrorInvalidValue, where);
}

/// One split of the whole device: a partition is a set of its groups.
struct partitioner::resources {
  struct made_context {
    CUgreenCtx native;
    unsigned multiprocessors;
  };
  ~resources() {
    idle.each([](const made_context& c) { (void)driver().destroy(c.native); });
  }

  std::vector<CUdevResource> steps;
  kept_contexts<made_context> idle{64};  // Without streams.
};

partitioner::partitioner(int device) : device_{device} {
  const driver_functions& d = driver();
  if (!d.reason.empty()) {
    reason_ = d.reason;
    return;
  }
  try {
    CUdevice handle{};
    check_driver(d.device_get(&handle, device), "cuDeviceGet");
    CUdevResource all{};
    check_driver(d.device_resource(handle, &all, CU_DEV_RESOURCE_TYPE_SM),
                 "cuDeviceGetDevResource");
    const unsigned least = least_step(device, all);
    unsigned count = 0;
    check_driver(d.split(nullptr, &count, &all, nullptr, 0, least), "cuDevSmResourceSplitByCount");
    auto made = std::make_unique<resources>();
    made->steps.resize(count);
    CUdevResource rest{};
    check_driver(d.split(made->steps.data(), &count, &all, &rest, 0, least),
                 "cuDevSmResourceSplitByCount");
    made->steps.resize(count);
    if (count == 0) {
      reason_ = fmt::format("device {} has too few multiprocessors to divide", device);
      return;
    }
    step_ = made->steps.front().sm.smCount;
    // An H200 splits into 15 steps of 8, with 12 of its 132 left.
    if (rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount >= step_) {
      made->steps.push_back(rest);
      ++count;
    }
    steps_ = count;
    resources_ = std::move(made);
    allocator_ = std::make_unique<step_allocator>(count);
  } catch (const cuda_error& e) {
    reason_ = e.what();
  }
}
partitioner::~partitioner() = default;

std::shared_ptr<partitioner> partitioner::make(int device) {
  return std::shared_ptr<partitioner>{new partitioner{device}};
}

std::unique_ptr<green_context> partitioner::make_partition(device_share share,
                                                           green_context* instead_of) {
  if (!reason_.empty()) {
    throw resource_error{
        fmt::format("make_stream: a share of {} % of device {} is not possible: {}",
                    share.percent(), device_, reason_)};
  }
  const driver_functions& d = driver();
  std::unique_ptr<green_context> g{new green_context};
  const std::lock_guard lock{mutex_};
  if (instead_of != nullptr) allocator_->give_back(instead_of->steps_);
  g->steps_ = allocator_->take(share);
  g->made_of_ = g->steps_;
  if (const auto kept = resources_->idle.take(g->steps_)) {
    g->native_ = kept->native;
    g->multiprocessors_ = kept->multiprocessors;
    if (instead_of != nullptr) instead_of->steps_.clear();
    g->owner_ = shared_from_this();
    return g;
  }
  try {
    std::vector<CUdevResource> chosen;
    for (const unsigned i : g->steps_) chosen.push_back(resources_->steps[i]);
    CUdevResourceDesc description{};
    check_driver(d.describe(&description, chosen.data(), static_cast<unsigned>(chosen.size())),
                 "cuDevResourceGenerateDesc");
    CUdevice handle{};
    check_driver(d.device_get(&handle, device_), "cuDeviceGet");
    CUgreenCtx made{};
    check_driver(d.create(&made, description, handle, CU_GREEN_CTX_DEFAULT_STREAM),
                 "cuGreenCtxCreate");
    g->native_ = made;
    CUdevResource got{};
    check_driver(d.resource_of(made, &got, CU_DEV_RESOURCE_TYPE_SM), "cuGreenCtxGetDevResource");
    g->multiprocessors_ = got.sm.smCount;
  } catch (...) {
    allocator_->give_back(g->steps_);
    if (instead_of != nullptr) allocator_->retake(instead_of->steps_);
    if (g->native_ != nullptr) (void)d.destroy(static_cast<CUgreenCtx>(g->native_));
    g->native_ = nullptr;
    throw;
  }
  if (instead_of != nullptr) instead_of->steps_.clear();
  g->owner_ = shared_from_this();
  return g;
}

void partitioner::take_back(green_context& g) noexcept {
  const resources::made_context ended{static_cast<CUgreenCtx>(g.native_), g.multiprocessors_};
  std::optional<resources::made_context> beyond;
  try {
    const std::lock_guard lock{mutex_};
    allocator_->give_back(g.steps_);
    beyond = resources_->idle.keep(std::move(g.made_of_), ended);
  } catch (...) {  // Without memory for the list it is destroyed here.
    beyond = ended;
  }
  if (beyond) (void)driver().destroy(beyond->native);
}

void green_context::reclaim() noexcept {
  const std::lock_guard lock{owner_->mutex_};
  if (!steps_.empty()) return;
  steps_ = made_of_;
  owner_->allocator_->retake(steps_);
}
green_context::~green_context() {
  if (native_ != nullptr) owner_->take_back(*this);
}

stream green_context::make_stream() const {
  CUstream s = nullptr;
  check_driver(
      driver().make_stream(&s, static_cast<CUgreenCtx>(native_), CU_STREAM_NON_BLOCKING, 0),
      "cuGreenCtxStreamCreate");
  return stream{s};
}

}  // namespace cohort::runtime::cuda
