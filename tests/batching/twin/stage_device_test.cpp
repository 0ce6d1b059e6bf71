// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/twin/stage_device.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::batching::stage_device_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

using ends = std::vector<std::pair<std::uint32_t, double>>;  // (lane, ms).
ends drain(stage_device& d) {
  ends out;
  while (d.next() != never) {
    const time_point now = d.next();
    d.advance(now, [&](const device_item& i) { out.emplace_back(i.lane, to_ms(now)); });
    d.start();
  }
  return out;
}
device_item item(std::uint32_t lane, double ms, double share, std::uint64_t order = 0,
                 std::uint32_t first = 0, std::uint32_t stage = 0) {
  return {.lane = lane,
          .stage = stage,
          .order = order,
          .first = first,
          .work_ns = ms * 1e6,
          .share = share};
}

TEST_CASE(
    "a shared device runs all at full speed while it can, then slows all down in proportion") {
  stage_device d{true};
  d.add(item(0, 10, 0.75));
  d.add(item(1, 20, 0.25));
  CHECK(drain(d) == ends{{0, 10}, {1, 20}});
  stage_device e{true};
  e.add(item(0, 10, 1));
  e.add(item(1, 20, 1));
  CHECK(drain(e) == ends{{0, 20}, {1, 30}});  // Both at half speed until 20; 10 are left.
  stage_device f{true};
  f.add(item(0, 10, 1));
  f.advance(t0 + 5ms, [](const device_item&) { FAIL("too early"); });
  f.add(item(1, 10, 0.6));
  CHECK(drain(f) == ends{{0, 13}, {1, 18}});  // 5 left at 1 / 1.6; then 5 of 10 are left.
}
TEST_CASE("a serial device takes the oldest row, its earliest child, its latest stage") {
  stage_device d{false};
  d.add(item(0, 1, 1, 2));
  d.add(item(1, 1, 1, 1, 4, 2));
  d.add(item(2, 1, 1, 1, 2, 1));
  d.add(item(3, 1, 1, 1, 2, 3));
  d.start();
  d.start();  // It is busy.
  CHECK(drain(d) == ends{{3, 1}, {2, 2}, {1, 3}, {0, 4}});
}
TEST_CASE("of what ends at one instant the oldest row is told first") {
  stage_device d{true};
  d.add(item(0, 10, 0.2, 3));
  d.add(item(1, 10, 0.2, 1));
  d.add(item(2, 10, 0.2, 2, 4));
  d.add(item(3, 10, 0.2, 2, 1));
  CHECK(drain(d) == ends{{1, 10}, {3, 10}, {2, 10}, {0, 10}});
}

}  // namespace
}  // namespace cohort::batching::stage_device_test
