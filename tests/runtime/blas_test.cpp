// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/blas.hpp>

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "host_fixture.hpp"

namespace cohort::runtime::blas_test {
namespace {

TEST_CASE("the products of the component multiply, and say whose they are on one line") {
  const host_products products = blas_products();
  REQUIRE((products.multiply != nullptr));
  REQUIRE((products.describe != nullptr));
  // [1 2; 3 4] * [5 6; 7 8] = [19 22; 43 50].
  conformance::host_fixture<host_executor, blas_products> f;
  auto s = f.executor.make_stream();
  const std::array<float, 4> a{1, 2, 3, 4};
  const std::array<float, 4> b{5, 6, 7, 8};
  std::array<float, 4> c{};
  f.executor.gemm(s, {.m = 2,
                      .n = 2,
                      .k = 2,
                      .a = a.data(),
                      .lda = 2,
                      .b = b.data(),
                      .ldb = 2,
                      .c = c.data(),
                      .ldc = 2});
  f.settle(s);
  CHECK(c == std::array<float, 4>{19, 22, 43, 50});
  const std::string text = describe_host(products);
  CHECK(text == describe_host() + "; " + products.describe());
  CHECK_FALSE(products.describe().empty());
  CHECK(text.find('\n') == std::string::npos);
}
}  // namespace
}  // namespace cohort::runtime::blas_test
