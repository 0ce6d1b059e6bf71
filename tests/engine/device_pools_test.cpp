// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/device_pools.hpp>

#include <doctest/doctest.h>

namespace cohort::engine::device_pools_test {
namespace {

constexpr deferred::pool_id first{0};
constexpr deferred::pool_id second{1};

static_assert(pool_among() == deferred::pool_id{});
static_assert(pool_among(3U) == deferred::pool_id{});
static_assert(pool_among(second, 3U) == second);

TEST_CASE("whether a pool has a device in service, and when that changes") {
  device_pools all;
  all.add_pool(second);
  CHECK_FALSE(all.has_device(first));
  CHECK_FALSE(all.has_device(second));
  CHECK(all.changes() == 0);
  all.add_device(device_id{3}, second);
  all.add_device(device_id{0}, second);
  CHECK(all.of(device_id{3}) == second);
  CHECK_FALSE(all.has_device(first));
  CHECK(all.has_device(second));
  CHECK(all.changes() == 1);  // The second one is one more.
  all.take_out(device_id{3});
  CHECK(all.has_device(second));
  CHECK(all.changes() == 1);
  all.take_out(device_id{0});
  CHECK_FALSE(all.has_device(second));
  CHECK(all.changes() == 2);
  all.put_back(device_id{3});
  CHECK(all.has_device(second));
  CHECK(all.changes() == 3);
}

}  // namespace
}  // namespace cohort::engine::device_pools_test
