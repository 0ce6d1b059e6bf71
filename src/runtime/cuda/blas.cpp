// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/error.hpp>

#include <cublas_v2.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <limits>
#include <source_location>

namespace cohort::runtime::cuda {
namespace {

// Written out if the header also has a C++ overload.
using multiply_function = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t,
                                             int m, int n, int k, const void* alpha, const void* a,
                                             cudaDataType, int lda, const void* b, cudaDataType,
                                             int ldb, const void* beta, void* c, cudaDataType,
                                             int ldc, cublasComputeType_t, cublasGemmAlgo_t);
using multiply_batches_function = cublasStatus_t (*)(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void* alpha,
    const void* a, cudaDataType, int lda, long long stride_a, const void* b, cudaDataType, int ldb,
    long long stride_b, const void* beta, void* c, cudaDataType, int ldc, long long stride_c,
    int batches, cublasComputeType_t, cublasGemmAlgo_t);

/// cuBLAS's functions, loaded at run time: the library is half a gigabyte, and may be missing on
/// machines without a GPU.
struct library {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetSmCountTarget) set_multiprocessors = nullptr;
  multiply_function multiply = nullptr;
  multiply_batches_function multiply_batches = nullptr;
  decltype(&cublasGetStatusName) status_name = nullptr;
  std::string reason;
};

library load() {
  library l;
  const std::string name = fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR);
  // Stays loaded: handles may live as long as the process.
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    l.reason = fmt::format("no cuBLAS: {}", why != nullptr ? why : name);
    return l;
  }
  const auto find = [&]<class F>(F& into, const char* symbol) {
    into = reinterpret_cast<F>(dlsym(handle, symbol));
    if (into == nullptr && l.reason.empty()) {
      l.reason = fmt::format("no cuBLAS: {} lacks {}", name, symbol);
    }
  };
  find(l.create, "cublasCreate_v2");
  find(l.destroy, "cublasDestroy_v2");
  find(l.set_stream, "cublasSetStream_v2");
  find(l.set_workspace, "cublasSetWorkspace_v2");
  find(l.set_multiprocessors, "cublasSetSmCountTarget");
  find(l.multiply, "cublasGemmEx");
  find(l.multiply_batches, "cublasGemmStridedBatchedEx");
  find(l.status_name, "cublasGetStatusName");
  return l;
}

const library& cublas() {
  static const library l = load();
  return l;
}

void check_blas(cublasStatus_t s, const char* call,
                std::source_location where = std::source_location::current()) {
  if (s == CUBLAS_STATUS_SUCCESS) return;
  // A refused product does not mean that the device failed, unless the device says so itself.
  const cudaError_t state = cudaPeekAtLastError();
  fail(fmt::format("{}: {}", call, cublas().status_name(s)),
       is_sticky(state) ? state : cudaErrorInvalidValue, where);
}

int blas_int(std::size_t value, const char* what) {
  if (value > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw config_error{fmt::format("gemm: {} is {}, but cuBLAS takes at most {}", what, value,
                                   std::numeric_limits<int>::max())};
  }
  return static_cast<int>(value);
}

cudaDataType_t type_of(data_type t) {
  switch (t) {
    case data_type::f32:
      return CUDA_R_32F;
    case data_type::f16:
      return CUDA_R_16F;
    case data_type::bf16:
      return CUDA_R_16BF;
    default:
      throw config_error{"gemm: type must be f32, f16 or bf16"};
  }
}

}  // namespace

const std::string& why_no_blas() { return cublas().reason; }

blas::blas(std::size_t workspace_bytes) : workspace_bytes_{workspace_bytes} {
  if (!why_no_blas().empty()) throw resource_error{why_no_blas()};
  cublasHandle_t h = nullptr;
  check_blas(cublas().create(&h), "cublasCreate");
  handle_ = h;
  if (workspace_bytes == 0) return;
  if (const cudaError_t e = cudaMalloc(&workspace_, workspace_bytes); e != cudaSuccess) {
    (void)cublas().destroy(h);
    check(e, "cudaMalloc of a cuBLAS workspace");
  }
}
void blas::unbind() noexcept {
  (void)cublas().set_stream(static_cast<cublasHandle_t>(handle_), cudaStreamPerThread);
}
blas::~blas() {
  (void)cublas().destroy(static_cast<cublasHandle_t>(handle_));
  if (workspace_ != nullptr) (void)cudaFree(workspace_);
}

void blas::bind(stream_view s, unsigned multiprocessors) {
  auto* h = static_cast<cublasHandle_t>(handle_);
  check_blas(cublas().set_stream(h, s.native()), "cublasSetStream");
  // After setting the stream, which resets the workspace to one shared by all streams.
  if (workspace_ != nullptr) {
    check_blas(cublas().set_workspace(h, workspace_, workspace_bytes_), "cublasSetWorkspace");
  }
  check_blas(cublas().set_multiprocessors(h, static_cast<int>(multiprocessors)),
             "cublasSetSmCountTarget");
}

void blas::multiply(const gemm_request& g) {
  // Row-major C = op(A) · op(B) is column-major Cᵀ = op(B)ᵀ · op(A)ᵀ, and a row-major matrix is its
  // transpose in column-major: so the operands are exchanged, and nothing is transposed.
  const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cudaDataType_t type = type_of(g.type);
  const int m = blas_int(g.m, "m");
  const int n = blas_int(g.n, "n");
  const int k = blas_int(g.k, "k");
  const int lda = blas_int(g.lda, "lda");
  const int ldb = blas_int(g.ldb, "ldb");
  const int ldc = blas_int(g.ldc, "ldc");
  const int batches = blas_int(g.batches, "batches");
  if (m == 0 || n == 0 || batches == 0) return;
  auto* h = static_cast<cublasHandle_t>(handle_);
  if (batches == 1) {
    check_blas(cublas().multiply(h, op(g.transpose_b), op(g.transpose_a), n, m, k, &g.alpha, g.b,
                                 type, ldb, g.a, type, lda, &g.beta, g.c, type, ldc,
                                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
               "cublasGemmEx");
  } else {
    check_blas(cublas().multiply_batches(h, op(g.transpose_b), op(g.transpose_a), n, m, k, &g.alpha,
                                         g.b, type, ldb, static_cast<long long>(g.stride_b), g.a,
                                         type, lda, static_cast<long long>(g.stride_a), &g.beta,
                                         g.c, type, ldc, static_cast<long long>(g.stride_c),
                                         batches, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
               "cublasGemmStridedBatchedEx");
  }
}

}  // namespace cohort::runtime::cuda
