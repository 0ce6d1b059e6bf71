// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/executor.hpp>

#include <doctest/doctest.h>

#include <cohort/runtime/emulated.hpp>
#include <cohort/runtime/host.hpp>

namespace cohort::runtime::executor_test {
namespace {

static_assert(executor<host_executor>);
static_assert(executor<emulated_executor>);
static_assert(!executor<int>);
static_assert(launching_executor<host_executor>);
static_assert(launching_executor<emulated_executor>);

TEST_CASE("a plain copy is one row, a plain product one batch") {
  const copy_request c{.destination = nullptr, .source = nullptr, .row_bytes = 4};
  CHECK(c.rows == 1);
  const gemm_request g{.m = 1,
                       .n = 1,
                       .k = 1,
                       .a = nullptr,
                       .lda = 1,
                       .b = nullptr,
                       .ldb = 1,
                       .c = nullptr,
                       .ldc = 1};
  CHECK(g.batches == 1);
  CHECK(g.type == data_type::f32);
  CHECK(g.alpha == 1);
  CHECK(g.beta == 0);
}
}  // namespace
}  // namespace cohort::runtime::executor_test
