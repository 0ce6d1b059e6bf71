// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/model_routes.hpp>

#include <doctest/doctest.h>

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
  CHECK_FALSE(model_routes::begin_cancel(a));  // It was never taken.
  model_routes::begin(a);
  CHECK(model_routes::begin_cancel(a));
  CHECK_FALSE(model_routes::begin_cancel(a));  // One is on its way.
  CHECK_FALSE(r.is_lost(a));
  r.end(a);
  CHECK_FALSE(model_routes::begin_cancel(a));
  CHECK(r.is_lost(a));
  CHECK_FALSE(r.is_lost(a));  // Told once.

  model_routes::begin(a);
  r.end(a);
  CHECK_FALSE(model_routes::begin_cancel(a));
  CHECK_FALSE(r.is_lost(a));

  model_routes::begin(a);
  CHECK(model_routes::begin_cancel(a));
  r.take_back_cancel(a);  // It could not be sent: all is as before.
  CHECK(model_routes::begin_cancel(a));
  r.end(a);
  r.take_back_cancel(a);
  CHECK_FALSE(r.is_lost(a));
}

}  // namespace
}  // namespace cohort::engine::model_routes_test
