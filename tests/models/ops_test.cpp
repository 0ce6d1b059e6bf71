// SPDX-License-Identifier: Apache-2.0
#include <models/ops.hpp>

#include <doctest/doctest.h>
#include <cohort/runtime/blas.hpp>

#include <semaphore>

#include <models/host_ops.hpp>

#include "ops_conformance.hpp"

namespace cohort::models::conformance::ops_test {
namespace {

struct host_ops_fixture {
  using operations = host_ops;
  runtime::host_executor executor{
      {.pool_bytes = std::size_t{4} << 20U, .products = runtime::blas_products()}};
  host_ops ops{executor};
  host_ops::stream stream = executor.make_stream();
  void settle() {
    struct finished : runtime::completion {
      std::binary_semaphore done{0};
    } f;
    f.invoke = [](runtime::completion& c, bool) noexcept {
      static_cast<finished&>(c).done.release();
    };
    executor.notify(stream, f);
    f.done.acquire();
  }
};

TEST_CASE("the host's operations compute what they say") { check_all_ops<host_ops_fixture>(); }
}  // namespace
}  // namespace cohort::models::conformance::ops_test
