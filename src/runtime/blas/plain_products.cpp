// SPDX-License-Identifier: Apache-2.0
// For builds without a BLAS: right, not fast.
#include <cohort/runtime/blas.hpp>

#include <string>

namespace cohort::runtime {
namespace {

void multiply(const gemm_request& g) {
  for (std::size_t x = 0; x < g.batches; ++x) {
    const auto* a = static_cast<const float*>(g.a) + x * g.stride_a;
    const auto* b = static_cast<const float*>(g.b) + x * g.stride_b;
    auto* c = static_cast<float*>(g.c) + x * g.stride_c;
    for (std::size_t i = 0; i < g.m; ++i) {
      for (std::size_t j = 0; j < g.n; ++j) {
        float sum = 0;
        for (std::size_t l = 0; l < g.k; ++l) {
          sum += (g.transpose_a ? a[l * g.lda + i] : a[i * g.lda + l]) *
                 (g.transpose_b ? b[j * g.ldb + l] : b[l * g.ldb + j]);
        }
        float& to = c[i * g.ldc + j];
        // As in a BLAS: with beta 0, C may contain anything.
        to = g.alpha * sum + (g.beta == 0 ? 0 : g.beta * to);
      }
    }
  }
}

std::string describe() { return "plain loops"; }

}  // namespace

host_products blas_products() { return {.multiply = multiply, .describe = describe}; }

}  // namespace cohort::runtime
