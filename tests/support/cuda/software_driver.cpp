// SPDX-License-Identifier: Apache-2.0
// The driver's calls for green contexts, which are looked up by name, and those of cuBLAS. This
// library bears cuBLAS's name, so that its loader finds it here.
#include <cublas_v2.h>

#include <array>
#include <cstring>
#include <string_view>

#include <llama/cuda/element.hpp>

#include "software_state.hpp"

struct cublasContext {
  int device = 0;
  CUstream_st* stream = nullptr;
  std::byte* workspace = nullptr;
};

namespace {

using namespace cohort::test::software_cuda;

/// As the runtime's, of which its errors have the numbers.
template <class F>
CUresult driver_call(const char* name, F body) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  cudaError_t e = s.enter(name);
  if (e == cudaSuccess) e = s.gpus[static_cast<std::size_t>(current_device())].lost;
  return e != cudaSuccess ? static_cast<CUresult>(e) : body(s);
}

/// A resource is a range of multiprocessors, which stands in its padding.
struct sm_range {
  unsigned first, count;
};
CUdevResource resource_of(sm_range r) {
  CUdevResource to{};
  to.type = CU_DEV_RESOURCE_TYPE_SM;
  to.sm.smCount = r.count;
#if CUDA_VERSION >= 13000
  to.sm.minSmPartitionSize = partition_step;
  to.sm.smCoscheduledAlignment = partition_step;
#endif
  std::memcpy(to._internal_padding, &r, sizeof r);
  return to;
}
sm_range range_of(const CUdevResource& r) {
  sm_range to{};
  std::memcpy(&to, r._internal_padding, sizeof to);
  return to;
}

CUresult CUDAAPI device_get(CUdevice* to, int device) {
  return driver_call("cuDeviceGet", [&](state& s) {
    if (device < 0 || device >= static_cast<int>(s.gpus.size())) return CUDA_ERROR_INVALID_DEVICE;
    *to = device;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI error_name(CUresult e, const char** name) {
  *name = cudaGetErrorName(static_cast<cudaError_t>(e));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI device_resource(CUdevice /*device*/, CUdevResource* to, CUdevResourceType type) {
  return driver_call("cuDeviceGetDevResource", [&](state& /*s*/) {
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *to = resource_of({0, multiprocessors});
    return CUDA_SUCCESS;
  });
}
/// As an H200: 15 groups of 8 of its 132, and 12 that are left.
CUresult CUDAAPI split(CUdevResource* groups, unsigned* count, const CUdevResource* input,
                       CUdevResource* rest, unsigned /*flags*/, unsigned least) {
  return driver_call("cuDevSmResourceSplitByCount", [&](state& /*s*/) {
    const sm_range all = range_of(*input);
    if (least == 0) return CUDA_ERROR_INVALID_VALUE;
    const unsigned step = (least + partition_step - 1) / partition_step * partition_step;
    unsigned most = all.count / step;
    if (all.count % step != 0 && most > 1) --most;
    if (groups == nullptr) {
      *count = most;
      return CUDA_SUCCESS;
    }
    *count = std::min(*count, most);
    for (unsigned i = 0; i < *count; ++i) groups[i] = resource_of({all.first + i * step, step});
    const unsigned used = *count * step;
    if (rest != nullptr) *rest = resource_of({all.first + used, all.count - used});
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI describe(CUdevResourceDesc* to, CUdevResource* resources, unsigned count) {
  return driver_call("cuDevResourceGenerateDesc", [&](state& s) {
    auto d = std::make_unique<CUdevResourceDesc_st>();
    for (unsigned i = 0; i < count; ++i) {
      const sm_range r = range_of(resources[i]);
      for (unsigned m = r.first; m < r.first + r.count; ++m) {
        if (!d->multiprocessors.insert(m).second) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      }
    }
    if (d->multiprocessors.empty()) return CUDA_ERROR_INVALID_VALUE;
    *to = s.descriptions.emplace_back(std::move(d)).get();
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI create(CUgreenCtx* to, CUdevResourceDesc d, CUdevice device, unsigned flags) {
  return driver_call("cuGreenCtxCreate", [&](state& s) {
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    *to = new CUgreenCtx_st{{device, true, d->multiprocessors}};
    s.green_contexts.insert(*to);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI destroy(CUgreenCtx c) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  (void)s.enter("cuGreenCtxDestroy", false);
  if (s.green_contexts.erase(c) == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (c->context.streams > 0) s.note("a green context destroyed before its streams");
  s.ended_contexts.emplace_back(c);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI resource_of_context(CUgreenCtx c, CUdevResource* to, CUdevResourceType /*type*/) {
  return driver_call("cuGreenCtxGetDevResource", [&](state& s) {
    if (!s.green_contexts.contains(c)) return CUDA_ERROR_INVALID_CONTEXT;
    *to = resource_of({0, static_cast<unsigned>(c->context.multiprocessors.size())});
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI make_stream(CUstream* to, CUgreenCtx c, unsigned flags, int /*priority*/) {
  return driver_call("cuGreenCtxStreamCreate", [&](state& s) {
    if (!s.green_contexts.contains(c)) return CUDA_ERROR_INVALID_CONTEXT;
    if ((flags & CU_STREAM_NON_BLOCKING) == 0) return CUDA_ERROR_INVALID_VALUE;
    *to = s.make_stream(&c->context);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI context_of(CUstream stream, CUcontext* to) {
  return driver_call("cuStreamGetCtx", [&](state& s) {
    if (!s.streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
    *to = stream->context;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI push(CUcontext c) {
  return driver_call("cuCtxPushCurrent", [&](state& /*s*/) {
    this_thread().contexts.push_back(c);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI pop(CUcontext* to) {
  auto& contexts = this_thread().contexts;
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (to != nullptr) *to = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}

// cuBLAS.

struct product {
  bool turn_a, turn_b;
  int m, n, k;
  float alpha, beta;
  const std::byte *a, *b;
  std::byte* c;
  int lda, ldb, ldc;
  long long stride_a, stride_b, stride_c;
  int batches;
  std::byte* workspace;

  template <class T>
  void run() const {
    // Who shares a workspace with another stream is told by what that leaves there.
    const product* self = this;
    if (workspace != nullptr) std::memcpy(workspace, static_cast<void*>(&self), sizeof self);
    using cohort::llama::device::narrow;
    using cohort::llama::device::widen;
    for (int batch = 0; batch < batches; ++batch) {
      const T* x = reinterpret_cast<const T*>(a) + batch * stride_a;
      const T* y = reinterpret_cast<const T*>(b) + batch * stride_b;
      T* z = reinterpret_cast<T*>(c) + batch * stride_c;
      for (long long j = 0; j < n; ++j) {
        for (long long i = 0; i < m; ++i) {
          float sum = 0;
          for (long long l = 0; l < k; ++l) {
            sum += widen(turn_a ? x[i * lda + l] : x[l * lda + i]) *
                   widen(turn_b ? y[l * ldb + j] : y[j * ldb + l]);
          }
          T& to = z[j * ldc + i];
          narrow(alpha * sum + (beta != 0 ? beta * widen(to) : 0), to);
        }
      }
    }
    if (workspace == nullptr) return;
    const product* seen = nullptr;
    std::memcpy(static_cast<void*>(&seen), workspace, sizeof seen);
    if (seen == self) return;
    state& s = state::get();
    const std::lock_guard lock{s.mutex};
    s.note("a cuBLAS workspace that two products used at once");
  }
};

cublasStatus_t multiply(const char* name, cublasHandle_t h, cudaDataType type, product p) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  if (s.enter(name) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (h->stream == nullptr || s.usable(h->stream) != cudaSuccess ||
      h->stream->queue->device != current_device()) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const bool fits = p.m >= 0 && p.n >= 0 && p.k >= 0 && p.batches >= 0 &&
                    p.lda >= std::max(1, p.turn_a ? p.k : p.m) &&
                    p.ldb >= std::max(1, p.turn_b ? p.n : p.k) && p.ldc >= std::max(1, p.m);
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  p.workspace = h->workspace;
  s.enqueue(h->stream, [&s, p, type, device = h->device] {
    s.run(device, [&] {
      if (type == CUDA_R_32F) {
        p.run<float>();
      } else if (type == CUDA_R_16F) {
        p.run<cohort::llama::device::f16>();
      } else {
        p.run<cohort::llama::device::bf16>();
      }
    });
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** to, unsigned /*version*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* how) {
  struct entry {
    const char* name;
    void* function;
  };
  const std::array known{
      entry{"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
      entry{"cuGetErrorName", reinterpret_cast<void*>(&error_name)},
      entry{"cuDeviceGetDevResource", reinterpret_cast<void*>(&device_resource)},
      entry{"cuDevSmResourceSplitByCount", reinterpret_cast<void*>(&split)},
      entry{"cuDevResourceGenerateDesc", reinterpret_cast<void*>(&describe)},
      entry{"cuGreenCtxCreate", reinterpret_cast<void*>(&create)},
      entry{"cuGreenCtxDestroy", reinterpret_cast<void*>(&destroy)},
      entry{"cuGreenCtxGetDevResource", reinterpret_cast<void*>(&resource_of_context)},
      entry{"cuGreenCtxStreamCreate", reinterpret_cast<void*>(&make_stream)},
      entry{"cuStreamGetCtx", reinterpret_cast<void*>(&context_of)},
      entry{"cuCtxPushCurrent", reinterpret_cast<void*>(&push)},
      entry{"cuCtxPopCurrent", reinterpret_cast<void*>(&pop)}};
  const std::string_view wanted{name};
  const bool is_old = !state::get().chosen.green_contexts && wanted.find("Green") != wanted.npos;
  for (const entry& e : known) {
    if (wanted != e.name || is_old) continue;
    *to = e.function;
    if (how != nullptr) *how = cudaDriverEntryPointSuccess;
    return cudaSuccess;
  }
  if (how != nullptr) *how = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  if (s.enter(__func__) != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
  *h = new cublasContext{.device = current_device()};
  ++s.blas_handles;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  state& s = state::get();
  std::unique_lock lock{s.mutex};
  s.await_idle(lock, h->device);  // As the real one: it has memory of its own to free.
  --s.blas_handles;
  delete h;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  if (s.enter(__func__) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  h->stream = stream == cudaStreamPerThread ? nullptr : stream;
  h->workspace = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void* at, std::size_t bytes) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  if (s.enter(__func__) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (reinterpret_cast<std::uintptr_t>(at) % 256 != 0 ||
      s.kind_of(at, bytes) != memory_kind::device) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  h->workspace = static_cast<std::byte*>(at);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetSmCountTarget(cublasHandle_t /*h*/, int /*count*/) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t e) {
  return e == CUBLAS_STATUS_ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED" : "an error of cuBLAS";
}
cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t turn_a, cublasOperation_t turn_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType type, int lda, long long stride_a, const void* b,
    cudaDataType /*b*/, int ldb, long long stride_b, const void* beta, void* c, cudaDataType /*c*/,
    int ldc, long long stride_c, int batches, cublasComputeType_t /*compute*/,
    cublasGemmAlgo_t /*how*/) {
  return multiply(
      __func__, h, type,
      {turn_a != CUBLAS_OP_N, turn_b != CUBLAS_OP_N, m, n, k, *static_cast<const float*>(alpha),
       *static_cast<const float*>(beta), static_cast<const std::byte*>(a),
       static_cast<const std::byte*>(b), static_cast<std::byte*>(c), lda, ldb, ldc, stride_a,
       stride_b, stride_c, batches, nullptr});
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t turn_a, cublasOperation_t turn_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType type, int lda, const void* b, cudaDataType type_b, int ldb,
                            const void* beta, void* c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t how) {
  return cublasGemmStridedBatchedEx(h, turn_a, turn_b, m, n, k, alpha, a, type, lda, 0, b, type_b,
                                    ldb, 0, beta, c, type_c, ldc, 0, 1, compute, how);
}

}  // extern "C"
