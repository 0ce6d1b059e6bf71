// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>

#include <cblas.h>
#include <fmt/format.h>

#include <limits>

#include "multiply.hpp"

namespace cohort::runtime::detail {
namespace {

void check_range(std::size_t value, const char* what) {
  constexpr std::size_t most = std::numeric_limits<int>::max();
  if (value > most) {
    throw config_error{
        fmt::format("gemm: {} is {}, but the host's BLAS takes at most {}", what, value, most)};
  }
}

}  // namespace

void use_one_thread() { openblas_set_num_threads(1); }

std::string describe_products() {
  // The core whose kernels it took is not always the processor's: see prepare_blas.
  return fmt::format("{}, kernels {}, 1 thread", openblas_get_config(), openblas_get_corename());
}

void check_product(const gemm_request& g) {
  check_range(g.m, "m");
  check_range(g.n, "n");
  check_range(g.k, "k");
  check_range(g.lda, "lda");
  check_range(g.ldb, "ldb");
  check_range(g.ldc, "ldc");
}

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

}  // namespace cohort::runtime::detail
