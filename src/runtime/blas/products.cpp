// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/blas.hpp>

#include <cblas.h>
#include <fmt/format.h>

#include <string>

namespace cohort::runtime {
namespace {

void multiply(const gemm_request& g) {
  const auto* a = static_cast<const float*>(g.a);
  const auto* b = static_cast<const float*>(g.b);
  auto* c = static_cast<float*>(g.c);
  for (std::size_t i = 0; i < g.batches; ++i) {
    cblas_sgemm(CblasRowMajor, g.transpose_a ? CblasTrans : CblasNoTrans,
                g.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(g.m),
                static_cast<int>(g.n), static_cast<int>(g.k), g.alpha, a + i * g.stride_a,
                static_cast<int>(g.lda), b + i * g.stride_b, static_cast<int>(g.ldb), g.beta,
                c + i * g.stride_c, static_cast<int>(g.ldc));
  }
}

std::string describe() {
  // The library's choice of kernels may not match the processor: see prepare_blas.
  return fmt::format("{}, kernels {}, 1 thread", openblas_get_config(), openblas_get_corename());
}

}  // namespace

host_products blas_products() {
  openblas_set_num_threads(1);
  return {.multiply = multiply, .describe = describe};
}

}  // namespace cohort::runtime
