// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/emulated.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::runtime::emulated_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct stamp : completion {
  stamp() {
    invoke = [](completion& c, bool) noexcept { ++static_cast<stamp&>(c).calls; };
  }
  int calls = 0;
};

TEST_CASE("launched work takes no time, and happens when the work before it ends") {
  emulated_executor e;
  auto s = e.make_stream();
  time_point first = never;
  time_point second = never;
  e.busy(s, 3ms);
  e.launch(s, [&] { first = e.now(); });
  e.busy(s, 4ms);
  e.launch(s, [&] { second = e.now(); });
  e.advance(time_point{});
  CHECK(first == never);
  e.advance(time_point{} + 5ms);
  CHECK(first == time_point{} + 3ms);
  CHECK(second == never);
  CHECK(e.now() == time_point{} + 5ms);
  e.advance(time_point{} + 9ms);
  CHECK(second == time_point{} + 7ms);
  CHECK(e.next_event() == never);
}
TEST_CASE("work takes its time and nothing happens but in advance") {
  emulated_executor e;
  auto s = e.make_stream();
  stamp done;
  e.busy(s, 5ms);
  e.busy(s, 2ms);
  e.notify(s, done);
  CHECK(e.next_event() == t0);  // There is something to start.
  e.advance(t0);
  CHECK(e.next_event() == t0 + 5ms);
  e.advance(t0 + 7ms - 1ns);
  CHECK(done.calls == 0);
  CHECK(e.next_event() == t0 + 7ms);
  e.advance(t0 + 7ms);
  CHECK(done.calls == 1);
  CHECK(e.next_event() == never);
}
TEST_CASE("work starts at the time of the last advance, and streams run side by side") {
  emulated_executor e;
  auto a = e.make_stream();
  auto b = e.make_stream();
  e.advance(t0 + 10ms);
  e.busy(a, 4ms);
  e.busy(b, 3ms);
  e.advance(t0 + 10ms);
  CHECK(e.next_event() == t0 + 13ms);
  e.advance(t0 + 13ms);
  CHECK(e.next_event() == t0 + 14ms);
  e.advance(t0 + 20ms);
}
TEST_CASE("a stream that waits starts when the other's mark is reached") {
  emulated_executor e;
  auto a = e.make_stream();
  auto b = e.make_stream();
  auto v = e.make_event();
  stamp done;
  e.busy(a, 5ms);
  e.record(a, v);
  e.wait(b, v);
  e.busy(b, 1ms);
  e.notify(b, done);
  e.advance(t0 + 6ms - 1ns);
  CHECK(e.is_done(v));
  CHECK(done.calls == 0);
  e.advance(t0 + 6ms);
  CHECK(done.calls == 1);
}
TEST_CASE("copies and products take what the speeds say, products by the partition's share") {
  emulated_executor e{{.copy_bytes_per_second = 1e6, .gemm_flops_per_second = 2e6}};
  auto half = e.make_stream(device_share{50});
  auto from = e.allocate(3000);
  auto to = e.allocate(3000);
  from.data()[2999] = std::byte{7};
  e.copy(half, {.destination = to.data(), .source = from.data(), .row_bytes = 3000});
  e.gemm(half, {.m = 10,
                .n = 10,
                .k = 10,
                .a = nullptr,
                .lda = 10,
                .b = nullptr,
                .ldb = 10,
                .c = nullptr,
                .ldc = 10});
  e.advance(t0);
  CHECK(e.next_event() == t0 + 3ms);
  CHECK(to.data()[2999] == std::byte{0});  // Copied when its time is over.
  e.advance(t0 + 3ms);
  CHECK(to.data()[2999] == std::byte{7});
  CHECK(e.next_event() == t0 + 5ms);  // 2000 flops at 1e6 a second.
  e.advance(t0 + 5ms);
}
TEST_CASE("a notification may enqueue more") {
  emulated_executor e;
  auto s = e.make_stream();
  struct again : completion {
    emulated_executor* e = nullptr;
    emulated_executor::stream* s = nullptr;
    int left = 3;
  } c;
  c.e = &e;
  c.s = &s;
  c.invoke = [](completion& x, bool) noexcept {
    auto& self = static_cast<again&>(x);
    if (--self.left == 0) return;
    self.e->busy(*self.s, 1ms);
    self.e->notify(*self.s, self);
  };
  e.notify(s, c);
  e.advance(t0 + 10ms);
  CHECK(c.left == 0);
}
TEST_CASE("a stream takes what it has not done along") {
  emulated_executor e;
  stamp done;
  {
    auto s = e.make_stream();
    e.busy(s, 5ms);
    e.notify(s, done);
    e.advance(t0 + 1ms);
  }
  CHECK(e.next_event() == never);
  auto next = e.make_stream();  // In its place.
  e.busy(next, 2ms);
  e.notify(next, done);
  e.advance(t0 + 2ms);
  e.advance(t0 + 20ms);
  CHECK(done.calls == 1);
}
TEST_CASE("options outside of their ranges are refused") {
  CHECK_THROWS_AS(emulated_executor({.copy_bytes_per_second = -1}), config_error);
  CHECK_THROWS_AS(emulated_executor({.pool_bytes = 0}), config_error);
}
TEST_CASE("an exhausted pool says so, and serves again what was given back") {
  emulated_executor e{{.pool_bytes = 64}};
  {
    const auto taken = e.allocate(64);
    CHECK(test::gist_of<resource_error>([&] { (void)e.allocate(1); }) ==
          "emulated_executor: ... not fit ... pool_bytes");
  }
  CHECK(e.allocate(64).size() == 64);
}
TEST_CASE("a stream of a device with faults is slow, fails and hangs as they say") {
  struct result : completion {
    result() {
      invoke = [](completion& c, bool f) noexcept {
        auto& self = static_cast<result&>(c);
        ++self.calls;
        self.failed = f;
      };
    }
    int calls = 0;
    bool failed = false;
  };
  // Instants count from the first `advance`.
  const std::vector<fault> faults{
      {.at = 0ms, .device = device_id{3}, .kind = fault_kind::slow, .lasts = 10ms, .factor = 2},
      {.at = 20ms, .device = device_id{3}, .kind = fault_kind::fail, .lasts = 5ms},
      {.at = 40ms, .device = device_id{3}, .kind = fault_kind::hang}};
  emulated_executor e;
  e.advance(t0);
  auto s = e.make_stream({}, device_course{faults, device_id{3}});
  result done;
  const auto send = [&](duration time) {
    e.busy(s, time);
    e.notify(s, done);
    e.advance(e.next_event());
  };
  send(3ms);
  CHECK(e.next_event() == t0 + 6ms);
  e.advance(t0 + 6ms);
  CHECK(done.calls == 1);
  CHECK_FALSE(done.failed);
  e.advance(t0 + 18ms);
  send(3ms);
  CHECK(e.next_event() == t0 + 20ms);
  e.advance(t0 + 20ms);
  CHECK(done.failed);
  e.advance(t0 + 30ms);
  send(3ms);
  e.advance(t0 + 33ms);
  CHECK(done.calls == 3);
  CHECK_FALSE(done.failed);  // What failed before is over.
  e.advance(t0 + 39ms);
  send(3ms);
  CHECK(e.next_event() == never);
  e.advance(t0 + 100s);
  CHECK(done.calls == 3);
}

}  // namespace
}  // namespace cohort::runtime::emulated_test
