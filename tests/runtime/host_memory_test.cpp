// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <cohort/runtime/host.hpp>

#include <cstddef>

namespace cohort::runtime::host_memory_test {
namespace {

TEST_CASE("a pool that the machine has no memory for is an exhausted resource") {
  const std::size_t too_much = std::size_t{1} << 62U;
  CHECK_THROWS_WITH_AS(host_executor({.pool_bytes = too_much}),
                       "host_executor: no memory for pool_bytes 4611686018427387904",
                       resource_error);
}

}  // namespace
}  // namespace cohort::runtime::host_memory_test
