// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/request_life.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::engine::request_end_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE(
    "a request that failed runs again if its model bears it, it is wanted, and not unfit, and none "
    "hung with it") {
  request r;
  CHECK(may_run_again(r, true, true, 1));
  CHECK_FALSE(may_run_again(r, false, true, 1));
  CHECK_FALSE(may_run_again(r, true, false, 1));
  CHECK_FALSE(may_run_again(r, true, true, 0));
  r.attempts = 1;
  CHECK_FALSE(may_run_again(r, true, true, 1));
  CHECK(may_run_again(r, true, true, 2));
  r.cancel_requested = true;
  CHECK_FALSE(may_run_again(r, true, true, 2));
  r.cancel_requested = false;
  r.is_unfit = true;
  CHECK_FALSE(may_run_again(r, true, true, 2));
  r.is_unfit = false;
  CHECK(may_run_again(r, true, true, 2));
  r.is_spent = true;
  CHECK_FALSE(may_run_again(r, true, true, 2));
}
TEST_CASE("a cancellation that was seen comes first, then failure, then the deadline") {
  request r;
  r.deadline = time_point{5ms};
  CHECK(how_it_ended(r, false, time_point{5ms}) == outcome::completed);
  CHECK(how_it_ended(r, false, time_point{5ms + 1ns}) == outcome::late);
  CHECK(how_it_ended(r, true, time_point{5ms}) == outcome::failed);
  r.cancel_requested = true;
  CHECK(how_it_ended(r, true, time_point{5ms}) == outcome::cancelled);
}

}  // namespace
}  // namespace cohort::engine::request_end_test
