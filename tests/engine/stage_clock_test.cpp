// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/stage_clock.hpp>

#include <doctest/doctest.h>
#include <cohort/core/device_course.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/runtime/emulated.hpp>

#include <chrono>
#include <stdexcept>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::engine::stage_clock_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("marks tell when the work before them ended, in each of several runs") {
  runtime::emulated_executor e;
  auto s = e.make_stream();
  stage_clock<runtime::emulated_executor> clock{e, 3};
  for (const duration first : {3ms, 5ms}) {
    clock.mark(s, 0);
    e.busy(s, first);
    clock.mark(s, 1);
    e.busy(s, 4ms);
    clock.mark(s, 2);
    const time_point begin = e.now();
    CHECK(finish(e, s) == begin + first + 4ms);
    CHECK(clock.between(0, 1) == first);
    CHECK(clock.between(1, 2) == 4ms);
    CHECK(clock.between(0, 2) == first + 4ms);
  }
}
TEST_CASE("work that fails is an error with its text, and the stream can be used on") {
  runtime::emulated_executor e;
  auto s = e.make_stream();
  e.launch(s, [] { throw std::runtime_error{"no room for 7"}; });
  CHECK(test::gist_of<device_error>([&] { (void)finish(e, s); }) ==
        "measure ... failed: no room for 7");
  e.busy(s, 1ms);
  CHECK(finish(e, s) == time_point{} + 1ms);
}
TEST_CASE("work that never ends in virtual time is an error, not a wait") {
  runtime::emulated_executor e;
  const std::vector<fault> faults{{.at = 0ms, .device = device_id{0}, .kind = fault_kind::hang}};
  auto s = e.make_stream({}, device_course{faults, device_id{0}});
  e.busy(s, 1ms);
  CHECK(test::gist_of<device_error>([&] { (void)finish(e, s); }) == "measure ... work never ends");
}
}  // namespace
}  // namespace cohort::engine::stage_clock_test
