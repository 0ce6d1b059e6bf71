// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/model_routes.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace cohort::engine::model_routes_test {
namespace {

TEST_CASE("a model's shard is known also when it is closed, and what never was is not open") {
  model_routes r{2};
  CHECK_FALSE(r.is_open(model_id{0}));
  CHECK_FALSE(r.is_open(model_id{2}));
  r.open(model_id{0}, 3);
  CHECK(r.is_open(model_id{0}));
  r.move(model_id{0}, 1);
  r.close(model_id{0});
  CHECK_FALSE(r.is_open(model_id{0}));
  CHECK(r.shard_of(model_id{0}) == 1);
}
TEST_CASE("of end and cancellation whoever comes second knows of the first") {
  model_routes r{1};
  request a;
  CHECK(r.begin_cancel(a) == 0);  // It was never taken.
  model_routes::begin(a);
  const std::uint32_t first = r.begin_cancel(a);
  CHECK(first > 0);
  CHECK(r.begin_cancel(a) == 0);  // One is on its way.
  CHECK_FALSE(r.is_lost(a, first));
  r.end(a);
  CHECK(r.begin_cancel(a) == 0);
  CHECK(r.is_lost(a, first));
  CHECK_FALSE(r.is_lost(a, first));  // Told once.

  model_routes::begin(a);
  r.end(a);
  CHECK(r.begin_cancel(a) == 0);
}
TEST_CASE("a route is closed once, and only where there is one") {
  model_routes r{1};
  CHECK_FALSE(r.close(model_id{0}));
  r.open(model_id{0}, 0);
  CHECK(r.close(model_id{0}));
  CHECK_FALSE(r.close(model_id{0}));
  CHECK_FALSE(r.close(model_id{1}));
}
TEST_CASE(
    "a request that is used again is not taken for the one before, whose cancellation is late") {
  model_routes r{1};
  request a;
  model_routes::begin(a);
  const std::uint32_t first = r.begin_cancel(a);
  r.end(a);  // Its message is still on its way.
  model_routes::begin(a);
  const std::uint32_t second = r.begin_cancel(a);
  CHECK(second != first);
  CHECK_FALSE(r.is_lost(a, second));  // That one counts.
  CHECK(r.is_lost(a, first));
}

}  // namespace
}  // namespace cohort::engine::model_routes_test
