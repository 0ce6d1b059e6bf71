// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/controls.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <thread>
#include <vector>

namespace cohort::engine::controls_test {
namespace {

TEST_CASE("what was posted is done in order by whoever takes it") {
  controls c;
  std::vector<int> done;
  int woken = 0;
  CHECK_FALSE(c.take(time_point{}));
  for (int i = 0; i < 3; ++i)
    c.post([&done, i](time_point) { done.push_back(i); }, [&] { ++woken; });
  CHECK(c.has_any());
  CHECK(c.take(time_point{}));
  CHECK(done == std::vector<int>{0, 1, 2});
  CHECK(woken == 3);
  CHECK_FALSE(c.take(time_point{}));
  CHECK_FALSE(c.is_stopped());
  c.stop();
  CHECK(c.is_stopped());
  CHECK(c.has_any());
}
TEST_CASE("who runs something elsewhere waits until it is done, and hears what it throws") {
  controls c;
  std::thread other{[&] {
    for (int n = 0; n < 2;) n += c.take(time_point{});
  }};
  int done = 0;
  c.run([&](time_point) { ++done; }, [] {});
  CHECK(done == 1);
  CHECK_THROWS_WITH_AS(c.run([](time_point) { throw config_error{"no"}; }, [] {}), "no",
                       config_error);
  other.join();
}

}  // namespace
}  // namespace cohort::engine::controls_test
