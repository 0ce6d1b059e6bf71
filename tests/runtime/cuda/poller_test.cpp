// SPDX-License-Identifier: Apache-2.0
// What needs no GPU: notifications without an event are due at once.
#include <runtime/cuda/poller.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace cohort::runtime::detail::poller_test {
namespace {

struct counted : completion {
  counted() {
    invoke = [](completion& c, bool f) noexcept {
      auto& self = static_cast<counted&>(c);
      self.failed = f;
      self.order = ++*self.next;
    };
  }
  int* next = nullptr;
  int order = 0;
  bool failed = false;
};

TEST_CASE("a lane is a queue, however much it grows") {
  notification_lane lane;
  std::deque<counted> all(100);
  std::size_t in = 0;
  std::size_t out = 0;
  // Two in, one out: the ring grows several times while it is in the middle of itself.
  while (in < all.size()) {
    lane.push({.behind = {}, .done = &all[in++], .failed = in % 3 == 0});
    lane.push({.behind = {}, .done = &all[in++], .failed = false});
    CHECK(lane.front().done == &all[out]);
    CHECK(lane.pop().done == &all[out++]);
  }
  while (!lane.is_empty()) CHECK(lane.pop().done == &all[out++]);
  CHECK(out == all.size());
}
TEST_CASE("notifications of a lane come in order; closing it waits for them") {
  device_health health;
  cuda::event_pool events{0};
  poller p{0, std::chrono::microseconds{10}, events, health};
  constexpr std::size_t lanes = 3;
  constexpr std::size_t each = 1000;
  std::vector<std::thread> streams;
  std::deque<std::deque<counted>> done(lanes);
  std::deque<int> next(lanes, 0);
  for (std::size_t s = 0; s < lanes; ++s) {
    done[s].resize(each);
    streams.emplace_back([&, s] {
      notification_lane lane;
      for (std::size_t i = 0; i < each; ++i) {
        done[s][i].next = &next[s];
        p.push(lane, {.behind = {}, .done = &done[s][i], .failed = i % 2 == 1});
      }
      p.close(lane);
    });
  }
  for (std::thread& t : streams) t.join();
  for (std::size_t s = 0; s < lanes; ++s) {
    for (std::size_t i = 0; i < each; ++i) {
      REQUIRE(done[s][i].order == static_cast<int>(i) + 1);
      REQUIRE(done[s][i].failed == (i % 2 == 1));
    }
  }
}
TEST_CASE("work that comes again is looked for when it is about to end") {
  using std::chrono::microseconds;
  look_pace pace;
  time_point now{};
  const auto at = [&](long us) { return now + microseconds{us}; };
  // Unknown: at once, and ever more rarely.
  pace.begin(at(0));
  CHECK(pace.pause(at(0)) == duration{});
  CHECK(pace.pause(at(300)) == duration{});
  CHECK(pace.pause(at(3'200)) == microseconds{200});
  CHECK(pace.pause(at(1'000'000)) == look_pace::longest_late);
  pace.end(at(4'000));
  // Then from 7/8 to 9/8 of what it took without a pause.
  pace.begin(at(4'000));
  CHECK(pace.pause(at(4'000)) == microseconds{3'500});
  CHECK(pace.pause(at(7'000)) == microseconds{500});
  CHECK(pace.pause(at(7'490)) == duration{});
  CHECK(pace.pause(at(8'500)) == duration{});
  CHECK(pace.pause(at(8'800)) == microseconds{50});
  pace.end(at(9'000));
  // Found over after a pause: it is looked for earlier until it is not, since when nobody knows.
  now = at(9'000);
  pace.begin(at(0));
  CHECK(pace.pause(at(0)) == microseconds{4'375});
  pace.end(at(4'375));
  pace.begin(at(5'000));
  CHECK(pace.pause(at(5'000)) == duration{microseconds{3'750}} * 7 / 8);
  // Short work is never paused for.
  pace.end(at(5'010));
  pace.begin(at(6'000));
  pace.end(at(6'010));
}
TEST_CASE("only errors that stay make a device unhealthy, and the first one is remembered") {
  device_health health;
  health.note(cudaErrorNotReady, "cudaEventQuery");
  health.note(cudaErrorInvalidValue, "cudaEventRecord");
  CHECK(health.is_good());
  CHECK(health.failure().empty());
  health.note(cudaErrorIllegalAddress, "cudaEventQuery");
  health.note(cudaErrorLaunchFailure, "launch");
  CHECK_FALSE(health.is_good());
  CHECK(health.failure().starts_with("cudaEventQuery: an illegal memory access"));
}
}  // namespace
}  // namespace cohort::runtime::detail::poller_test
