// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/device_half.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "device_owner.hpp"

namespace cohort::engine::device_half_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr device_entry entry{device_id{0}, 0};

/// One device for two batches one after the other, one model; a batch should end within 1 ms.
struct fixture {
  explicit fixture(const health_options& o = {.floor = 1ms, .patience = 2, .first_probe = 10ms})
      : half{o} {
    half.add_device(entry.device, 1, {});
    owner.lives.add(model_id{0}, {});
  }
  /// With so many new requests. @returns Its number.
  std::uint64_t send(std::size_t n, time_point at) {
    deferred::batch b{};
    b.exec_at = at;
    b.expected = 1ms;
    while (n-- > 0) b.requests.push_back(requests.emplace_back());
    return half.on_dispatch(std::move(b), owner.lives).number;
  }
  void end(std::uint64_t number, bool failed, time_point now) {
    half.on_complete({entry, number}, failed, now, owner);
  }
  std::deque<request> requests;
  test_support::noting_owner owner;
  device_half half;
};

TEST_CASE("a batch that ends frees its entry, and its requests are the owner's") {
  fixture f;
  const std::uint64_t a = f.send(2, t0);
  CHECK(f.owner.lives[model_id{0}].at_work == 1);
  f.end(a, false, t0 + 1ms);
  CHECK(f.owner.ends.size() == 2);
  CHECK(f.owner.devices.freed == std::vector{std::pair{entry, false}});
  CHECK(f.owner.lives[model_id{0}].at_work == 0);
  f.end(a, false, t0 + 1ms);  // Once more.
  CHECK(f.owner.strays == 1);
  CHECK(f.half.stray_ends() == 1);
  CHECK(f.owner.ends.size() == 2);
}
TEST_CASE("one that ends before its turn gives up its requests at once, and its place in turn") {
  fixture f;
  const std::uint64_t a = f.send(1, t0);
  const std::uint64_t b = f.send(1, t0);
  f.end(b, true, t0);
  CHECK(f.owner.ends == std::vector{std::pair{&f.requests[1], true}});
  CHECK(f.owner.devices.freed.empty());
  f.end(a, false, t0 + 1ms);
  CHECK(f.owner.devices.freed == std::vector{std::pair{entry, false}, std::pair{entry, true}});
}
TEST_CASE("a request may end before its batch, once") {
  fixture f;
  const std::uint64_t a = f.send(2, t0);
  f.half.on_request_complete({entry, a}, f.requests[0], false, t0, f.owner);
  f.half.on_request_complete({entry, a}, f.requests[0], false, t0, f.owner);
  CHECK(f.owner.strays == 1);
  f.end(a, true, t0 + 1ms);
  CHECK(f.owner.ends ==
        std::vector{std::pair{&f.requests[0], false}, std::pair{&f.requests[1], true}});
}
TEST_CASE("what hangs is given up, its device taken out, probed when it is back, and used again") {
  // Suspect after 3 * 1 ms + 1 ms, hangs after twice that.
  fixture f;
  const std::uint64_t a = f.send(1, t0);
  CHECK(f.half.next_wake() == t0 + 4ms);
  f.half.advance(t0 + 4ms, f.owner);
  CHECK(f.owner.ends.empty());
  CHECK(f.half.next_wake() == t0 + 8ms);
  f.owner.lets_go = false;
  f.half.advance(t0 + 8ms, f.owner);
  CHECK_FALSE(f.owner.devices.is_in_service);
  CHECK(f.owner.ends.empty());
  CHECK(f.half.next_wake() == t0 + 9ms);  // It is asked again.
  f.owner.lets_go = true;
  f.half.advance(t0 + 9ms, f.owner);
  CHECK(f.owner.ends == std::vector{std::pair{&f.requests[0], true}});
  CHECK(f.half.health().hanging_devices() == 1);

  f.end(a, false, t0 + 30ms);  // Nobody is left to hear of it.
  CHECK(f.owner.ends.size() == 1);
  CHECK(f.half.next_wake() == t0 + 30ms);
  f.half.advance(t0 + 30ms, f.owner);
  CHECK(f.owner.probes == std::vector{model_id{0}});
  CHECK(f.owner.lives[model_id{0}].at_work == 1);
  f.half.on_probe(entry.device, false, t0 + 31ms, f.owner);
  CHECK(f.owner.devices.is_in_service);
  CHECK(f.owner.lives[model_id{0}].at_work == 0);
  CHECK(f.owner.changes == std::vector<std::string>{"a batch hangs", "a probe succeeded"});
  f.half.on_probe(entry.device, false, t0 + 31ms, f.owner);
  CHECK(f.owner.strays == 1);
}
TEST_CASE("what is late for want of processors is not given up") {
  fixture f;
  f.send(1, t0);
  f.half.advance(t0 + 4ms, f.owner);  // Suspect.
  f.owner.load = {.waited = 3ms};
  f.half.advance(t0 + 8ms, f.owner);
  CHECK(f.owner.devices.is_in_service);
  CHECK(f.half.next_wake() == t0 + 11ms);  // 8 + 3.
  f.half.advance(t0 + 11ms, f.owner);
  CHECK(f.owner.ends == std::vector{std::pair{&f.requests[0], true}});
}
TEST_CASE("a device hangs in the oldest batch of an entry, not in the one behind it") {
  fixture f;
  f.send(1, t0);
  f.send(2, t0);
  f.half.advance(t0 + 4ms, f.owner);
  f.half.advance(t0 + 8ms, f.owner);
  REQUIRE(f.owner.ends.size() == 3);
  CHECK(f.requests[0].is_spent);
  CHECK_FALSE(f.requests[1].is_spent);
  CHECK_FALSE(f.requests[2].is_spent);
}
TEST_CASE("a request that no device was at work on may be tried again, wherever it was") {
  fixture f;
  f.send(2, t0);
  f.owner.behind = &f.requests[1];
  f.half.advance(t0 + 4ms, f.owner);
  f.half.advance(t0 + 8ms, f.owner);
  REQUIRE(f.owner.ends.size() == 2);
  CHECK(f.requests[0].is_spent);
  CHECK_FALSE(f.requests[1].is_spent);
  CHECK_FALSE(f.requests[1].was_behind);
}
TEST_CASE("a failure is blamed on a request that failed on another device, and that one forgiven") {
  fixture f{{.failures = 1, .window = 1, .first_probe = 10ms}};
  constexpr device_entry second{device_id{1}, 0};
  f.half.add_device(second.device, 1, {});
  f.end(f.send(1, t0), true, t0 + 1ms);
  CHECK(f.requests[0].failed_on == entry.device);
  CHECK(f.half.next_wake() == t0 + 11ms);
  CHECK(f.half.health().state(entry.device) == device_state::quarantined);
  f.requests[0].attempts = 1;
  deferred::batch again{};
  again.device = second.device;
  again.requests.push_back(f.requests[0]);
  const std::uint64_t number = f.half.on_dispatch(std::move(again), f.owner.lives).number;
  f.half.on_complete({second, number}, true, t0 + 3ms, f.owner);
  CHECK(f.half.next_wake() == t0 + 3ms);  // The first device is probed at once.
}
TEST_CASE("a request that fails before its batch ends is blamed as one that fails with it") {
  fixture f{{.failures = 2, .window = 2, .first_probe = 10ms}};
  constexpr device_entry second{device_id{1}, 0};
  f.half.add_device(second.device, 1, {});
  const std::uint64_t a = f.send(2, t0);
  f.requests[1].is_unfit = true;
  for (request& r : f.requests) f.half.on_request_complete({entry, a}, r, true, t0, f.owner);
  CHECK(f.requests[0].failed_on == entry.device);
  CHECK_FALSE(f.requests[1].failed_on);
  f.end(a, true, t0 + 1ms);

  deferred::batch again{};
  again.device = second.device;
  again.requests.push_back(f.requests[0]);
  const std::uint64_t b = f.half.on_dispatch(std::move(again), f.owner.lives).number;
  f.half.on_request_complete({second, b}, f.requests[0], true, t0 + 3ms, f.owner);
  CHECK(f.requests[0].is_spent);
  f.half.on_complete({second, b}, true, t0 + 4ms, f.owner);
  // Each device has one failure to go: that one counts against neither.
  f.end(f.send(1, t0), true, t0 + 5ms);
  CHECK(f.half.health().state(entry.device) == device_state::healthy);
  CHECK(f.half.health().state(second.device) == device_state::healthy);
  f.end(f.send(1, t0), true, t0 + 6ms);
  CHECK(f.half.health().state(entry.device) == device_state::quarantined);
}
TEST_CASE("a probe that hangs is told and asked to end, and the device is probed again after it") {
  fixture f{{.floor = 1ms, .patience = 2, .failures = 1, .window = 1, .first_probe = 10ms}};
  f.end(f.send(1, t0), true, t0 + 1ms);
  f.half.advance(t0 + 11ms, f.owner);
  CHECK(f.owner.probes == std::vector{model_id{0}});
  f.half.advance(t0 + 15ms, f.owner);  // 3 * 1 ms + 1 ms.
  CHECK(f.owner.abandoned_probes.empty());
  f.half.advance(t0 + 19ms, f.owner);
  CHECK(f.owner.changes == std::vector<std::string>{"batches fail", "a probe hangs"});
  CHECK(f.owner.abandoned_probes == std::vector{model_id{0}});
  CHECK(f.half.health().hanging_devices() == 1);
  CHECK(f.owner.lives[model_id{0}].at_work == 1);
  f.half.on_probe(entry.device, false, t0 + 30ms, f.owner);
  CHECK_FALSE(f.owner.devices.is_in_service);
  CHECK(f.half.health().hanging_devices() == 0);
  CHECK(f.owner.lives[model_id{0}].at_work == 0);
  CHECK(f.half.next_wake() == t0 + 50ms);
  f.half.advance(t0 + 50ms, f.owner);
  f.half.on_probe(entry.device, false, t0 + 51ms, f.owner);
  CHECK(f.owner.devices.is_in_service);
}
TEST_CASE("a device is probed with another model than the last time") {
  fixture f{{.failures = 1, .window = 1, .first_probe = 10ms}};
  f.owner.lives.add(model_id{1}, {});
  f.end(f.send(1, t0), true, t0 + 1ms);
  f.half.advance(t0 + 11ms, f.owner);
  f.half.on_probe(entry.device, true, t0 + 12ms, f.owner);
  f.half.advance(t0 + 32ms, f.owner);
  f.half.on_probe(entry.device, true, t0 + 33ms, f.owner);
  f.half.advance(t0 + 1s, f.owner);
  CHECK(f.owner.probes == std::vector{model_id{0}, model_id{1}, model_id{0}});
}
TEST_CASE("a device that is removed has its batches to their end") {
  fixture f;
  const std::uint64_t a = f.send(1, t0);
  f.half.remove_device(entry.device, f.owner.devices, t0);
  CHECK(f.owner.devices.is_removed);
  CHECK_FALSE(f.half.pools().has_device({}));
  f.end(a, false, t0 + 1ms);
  CHECK(f.owner.ends.size() == 1);
}

}  // namespace
}  // namespace cohort::engine::device_half_test
