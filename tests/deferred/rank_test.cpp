// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/rank.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace cohort::deferred::rank_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct recorder {
  std::vector<deferred::grant> grants;
  void grant(const deferred::grant& g) noexcept { grants.push_back(g); }
  void waits(model_id) noexcept {}
};

candidate opening(duration exec, duration latest, duration lead = 0ms) {
  return {
      .size = 1, .exec_at = t0 + exec, .latest = t0 + latest, .lead = lead, .urgency = t0 + latest};
}

struct fixture {
  explicit fixture(std::uint32_t devices, std::uint32_t models = 3, std::uint32_t capacity = 1) {
    ranking.reserve_models(models);
    for (std::uint32_t d = 0; d < devices; ++d) ranking.add_device(device_id{d}, t0, capacity);
  }
  /// Where the n-th grant went.
  [[nodiscard]] device_entry granted(std::size_t n) const {
    return {sink.grants.at(n).device, sink.grants.at(n).entry};
  }
  /// Runs until `at` and answers every grant with a batch of `length`.
  void use(duration at, duration length) {
    ranking.advance(t0 + at, sink);
    for (; answered < sink.grants.size(); ++answered) {
      const grant& g = sink.grants[answered];
      ranking.on_candidate(g.model, {}, t0 + at);
      ranking.on_grant_used(g.model, g.device, t0 + at, length, t0 + at);
    }
  }
  rank ranking;
  recorder sink;
  std::size_t answered = 0;
};

TEST_CASE("a model timer takes the free device with the smallest id") {
  fixture f{3};
  f.ranking.on_candidate(model_id{0}, opening(2ms, 3ms), t0);
  CHECK(f.ranking.next_wake() == t0 + 2ms);
  f.use(1ms, 5ms);
  CHECK(f.sink.grants.empty());
  f.use(2ms, 5ms);
  REQUIRE(f.sink.grants.size() == 1);
  CHECK(f.sink.grants[0].device == device_id{0});
  f.ranking.on_candidate(model_id{1}, opening(2ms, 3ms), t0 + 2ms);
  f.use(2ms, 5ms);
  CHECK(f.sink.grants[1].device == device_id{1});
}
TEST_CASE("the model whose window opens next is known") {
  fixture f{1};
  CHECK_FALSE(f.ranking.next_to_open());
  f.ranking.on_candidate(model_id{0}, opening(3ms, 5ms), t0);
  f.ranking.on_candidate(model_id{2}, opening(2ms, 9ms), t0);
  CHECK(f.ranking.next_to_open() == model_id{2});
  f.use(2ms, 1s);
  CHECK(f.ranking.next_to_open() == model_id{0});
  f.use(3ms, 1s);
  CHECK_FALSE(f.ranking.next_to_open());  // It waits.
}
TEST_CASE("until a device is free nobody is sent who joins those that wait") {
  fixture f{1};
  const auto quiet = [&](time_point opens) { return f.ranking.quiet_until(opens, 1ms, t0); };
  CHECK(quiet(t0 + 3ms) == t0 + 3ms);  // The device idles.
  CHECK(quiet(never) == never);
  f.ranking.on_candidate(model_id{0}, opening(0ms, 5ms), t0);
  f.use(0ms, 10ms);  // Until 10 ms.
  CHECK(quiet(never) == t0 + 9ms);
  CHECK(quiet(t0 + 20ms) == t0 + 20ms);  // Who comes may move that.
  f.ranking.on_candidate(model_id{1}, opening(0ms, 30ms), t0);
  f.ranking.advance(t0, f.sink);
  CHECK(quiet(t0 + 20ms) == t0 + 9ms);  // Somebody waits.
  CHECK(f.ranking.quiet_until(t0 + 20ms, 1ms, t0 + 9ms) == t0 + 20ms);
  f.ranking.remove_device(device_id{0}, t0);
}
TEST_CASE("whose window opened unseen while no device was free has waited like others") {
  fixture f{1};
  f.ranking.on_candidate(model_id{0}, opening(0ms, 1ms), t0);
  f.use(0ms, 6ms);
  f.ranking.on_candidate(model_id{1}, opening(3ms, 9ms), t0 + 1ms);
  f.ranking.on_candidate(model_id{2}, opening(4ms, 8ms), t0 + 1ms);
  f.ranking.on_complete(device_id{0}, t0 + 6ms);
  f.use(6ms, 6ms);  // And not before.
  REQUIRE(f.sink.grants.size() == 2);
  CHECK(f.sink.grants[1].model == model_id{2});  // The more urgent one, though it opened later.
  // As well those that came meanwhile and may start at any time, of which it is told late; and it
  // is the first who counts where a batch has grown.
  f.ranking.on_candidate(model_id{1}, opening(0ms, 29ms), t0 + 11ms);
  f.ranking.on_candidate(model_id{2}, opening(0ms, 28ms), t0 + 11ms);
  f.ranking.on_candidate(model_id{1}, opening(0ms, 29500us), t0 + 12ms);
  f.ranking.on_complete(device_id{0}, t0 + 12ms);
  f.use(12ms, 6ms);
  REQUIRE(f.sink.grants.size() == 3);
  CHECK(f.sink.grants[2].model == model_id{2});
}
TEST_CASE("a device that becomes free takes the candidate with the earliest latest start") {
  fixture f{1};
  f.ranking.on_candidate(model_id{0}, opening(0ms, 50ms), t0);
  f.use(0ms, 10ms);
  f.ranking.on_candidate(model_id{1}, opening(1ms, 30ms), t0);
  f.ranking.on_candidate(model_id{2}, opening(1ms, 20ms), t0);
  f.use(5ms, 10ms);
  CHECK(f.sink.grants.size() == 1);
  f.ranking.on_complete(device_id{0}, t0 + 10ms);
  f.use(10ms, 10ms);
  REQUIRE(f.sink.grants.size() == 2);
  CHECK(f.sink.grants[1].model == model_id{2});
}
TEST_CASE("a candidate is still valid at its last start, and not after") {
  fixture f{1};
  f.ranking.on_candidate(model_id{0}, opening(0ms, 50ms), t0);
  f.use(0ms, 10ms);
  f.ranking.on_candidate(model_id{1}, opening(1ms, 10ms), t0);
  f.ranking.on_candidate(model_id{2}, opening(1ms, 9ms), t0);
  f.use(2ms, 10ms);
  f.ranking.on_complete(device_id{0}, t0 + 10ms);
  f.use(10ms, 10ms);
  REQUIRE(f.sink.grants.size() == 2);
  CHECK(f.sink.grants[1].model == model_id{1});
}
TEST_CASE("a model has at most one grant outstanding") {
  fixture f{2};
  f.ranking.on_candidate(model_id{0}, opening(0ms, 9ms), t0);
  f.ranking.advance(t0, f.sink);
  REQUIRE(f.sink.grants.size() == 1);
  f.ranking.on_candidate(model_id{0}, opening(0ms, 8ms), t0);  // Before the answer.
  f.ranking.advance(t0 + 1ms, f.sink);
  CHECK(f.sink.grants.size() == 1);
  f.ranking.on_grant_used(model_id{0}, f.sink.grants[0].device, t0, 5ms, t0 + 1ms);
  f.ranking.advance(t0 + 1ms, f.sink);
  REQUIRE(f.sink.grants.size() == 2);
  CHECK(f.sink.grants[1].device == device_id{1});
}
TEST_CASE("a returned grant leaves the device free") {
  fixture f{1};
  f.ranking.on_candidate(model_id{0}, opening(0ms, 9ms), t0);
  f.ranking.advance(t0, f.sink);
  CHECK(f.ranking.idle_devices() == 0);
  f.ranking.on_candidate(model_id{0}, opening(4ms, 9ms), t0);
  f.ranking.on_grant_returned(model_id{0}, device_id{0}, t0);
  CHECK(f.ranking.idle_devices() == 1);
  f.ranking.advance(t0, f.sink);
  CHECK(f.sink.grants.size() == 1);
  CHECK(f.ranking.next_wake() == t0 + 4ms);
}
TEST_CASE("with a lead, a batch is sent before the one ahead of it should end") {
  fixture f{1};
  f.ranking.on_candidate(model_id{0}, opening(1ms, 50ms, 1ms), t0);
  f.use(0ms, 10ms);  // Starts at 0 by the answer, should end at 10.
  f.ranking.on_candidate(model_id{1}, opening(2ms, 50ms, 1ms), t0);
  f.use(1ms, 10ms);
  CHECK(f.sink.grants.size() == 1);
  CHECK(f.ranking.next_wake() == t0 + 9ms);
  f.use(9ms, 10ms);
  CHECK(f.sink.grants.size() == 2);
  CHECK(f.ranking.outstanding(device_id{0}) == 2);
}
TEST_CASE("nothing is sent behind a batch that overruns") {
  fixture f{1};
  f.ranking.on_candidate(model_id{0}, opening(1ms, 50ms, 1ms), t0);
  f.use(0ms, 10ms);
  f.ranking.on_candidate(model_id{1}, opening(11ms, 50ms, 500us), t0);
  f.use(12ms, 10ms);
  CHECK(f.sink.grants.size() == 1);
  f.ranking.on_complete(device_id{0}, t0 + 13ms);
  f.use(13ms, 10ms);
  CHECK(f.sink.grants.size() == 2);
}
TEST_CASE("an entry that is occupied is one with a batch, and free when that ends") {
  fixture f{2};
  CHECK(f.ranking.busy_until({device_id{0}, 0}) == distant_past);
  f.ranking.occupy({device_id{0}, 0}, t0 + 5ms, t0);
  CHECK(f.ranking.busy_until({device_id{0}, 0}) == t0 + 5ms);
  CHECK(f.ranking.idle_devices() == 1);
  f.ranking.on_candidate(model_id{0}, opening(0ms, 9ms), t0);
  f.use(0ms, 9ms);
  CHECK(f.granted(0).device == device_id{1});
  f.ranking.on_candidate(model_id{1}, opening(0ms, 9ms), t0);
  f.use(1ms, 9ms);
  REQUIRE(f.sink.grants.size() == 1);
  f.ranking.on_complete({device_id{0}, 0}, t0 + 6ms);
  f.use(6ms, 9ms);
  CHECK(f.granted(1).device == device_id{0});
}
TEST_CASE("a device that was removed gets no more work") {
  fixture f{2};
  f.ranking.remove_device(device_id{0}, t0);
  f.ranking.on_candidate(model_id{0}, opening(0ms, 9ms), t0);
  f.use(0ms, 5ms);
  CHECK(f.sink.grants.at(0).device == device_id{1});
  CHECK(f.ranking.devices() == 1);
}
TEST_CASE("a device out of service gets no work, counts for nothing and keeps its place") {
  fixture f{2};
  f.ranking.set_in_service(device_id{0}, false, t0);
  f.ranking.set_in_service(device_id{0}, false, t0);
  CHECK(f.ranking.entries() == 1);
  CHECK(f.ranking.idle_entries() == 1);
  CHECK(f.ranking.has_device(device_id{0}));
  CHECK_FALSE(f.ranking.is_in_service(device_id{0}));
  f.ranking.on_candidate(model_id{0}, opening(0ms, 9ms), t0);
  f.use(0ms, 5ms);
  CHECK(f.granted(0).device == device_id{1});
  f.ranking.on_candidate(model_id{1}, opening(0ms, 9ms), t0);
  f.use(1ms, 5ms);
  CHECK(f.sink.grants.size() == 1);  // It waits.
  f.ranking.set_in_service(device_id{0}, true, t0 + 2ms);
  f.use(2ms, 5ms);
  CHECK(f.granted(1).device == device_id{0});
  CHECK(f.ranking.entries() == 2);
  // What it has when it goes still ends; and it may be removed meanwhile.
  f.ranking.set_in_service(device_id{0}, false, t0 + 3ms);
  f.ranking.remove_device(device_id{0}, t0 + 3ms);
  CHECK(f.ranking.entries() == 1);
  CHECK(f.ranking.outstanding(device_id{0}) == 1);
  f.ranking.on_complete(device_id{0}, t0 + 7ms);
  CHECK(f.ranking.outstanding(device_id{0}) == 0);
  CHECK(f.ranking.idle_entries() == 0);
}
TEST_CASE("the typical batch is the one met on a busy device, so long ones count more") {
  fixture f{1};
  duration at = 0ms;
  for (int i = 0; i < 2000; ++i) {  // 1 and 9 ms in turn: 82 / 10 ms, not 5.
    const duration length = i % 2 == 0 ? 1ms : 9ms;
    f.ranking.on_candidate(model_id{0}, opening(at, at + 9ms), t0 + at);
    f.use(at, length);
    at += length;
    f.ranking.on_complete(device_id{0}, t0 + at);
  }
  CHECK(to_ms(f.sink.grants.back().pool.typical_batch) == doctest::Approx(8.2).epsilon(0.02));
}
TEST_CASE("the idle fraction follows the devices") {
  fixture f{2};
  CHECK(f.ranking.idle_fraction() == 1);
  duration at = 0ms;
  for (int i = 0; i < 200; ++i) {  // Device 0 always busy, device 1 never.
    f.ranking.on_candidate(model_id{0}, opening(at, at + 9ms), t0 + at);
    f.use(at, 10ms);
    at += 10ms;
    f.ranking.on_complete(device_id{0}, t0 + at);
  }
  CHECK(f.ranking.idle_fraction() == doctest::Approx(0.5).epsilon(0.02));
}
TEST_CASE("a device idles until a batch takes it, also if it is the only one") {
  fixture f{1};
  duration at = 0ms;
  for (int i = 0; i < 50; ++i) {  // 10 ms of work, 90 ms without.
    f.ranking.on_candidate(model_id{0}, opening(at, at + 9ms), t0 + at);
    f.use(at, 10ms);
    f.ranking.on_complete(device_id{0}, t0 + at + 10ms);
    at += 100ms;
  }
  CHECK(f.ranking.idle_fraction() == doctest::Approx(0.9).epsilon(0.1));
}
TEST_CASE(
    "a device of capacity 2 runs two batches, and the third takes the entry that ends first") {
  fixture f{1, 4, 2};
  CHECK(f.ranking.capacity(device_id{0}) == 2);
  for (std::uint32_t m = 0; m < 4; ++m) {
    f.ranking.on_candidate(model_id{m}, opening(0ms, 50ms), t0);
    f.use(0ms, 10ms);
  }
  REQUIRE(f.sink.grants.size() == 2);
  CHECK(f.granted(0) == device_entry{device_id{0}, 0});
  CHECK(f.granted(1) == device_entry{device_id{0}, 1});
  CHECK(f.ranking.outstanding(device_id{0}) == 2);
  f.ranking.on_complete({device_id{0}, 1}, t0 + 4ms);  // The later one, and before its time.
  f.use(4ms, 10ms);
  REQUIRE(f.sink.grants.size() == 3);
  CHECK(f.granted(2) == device_entry{device_id{0}, 1});
  f.ranking.on_complete(device_id{0}, t0 + 5ms);  // A device alone is its first entry.
  f.use(5ms, 10ms);
  REQUIRE(f.sink.grants.size() == 4);
  CHECK(f.granted(3) == device_entry{device_id{0}, 0});
}
TEST_CASE("a batch goes where it shares the device with the fewest") {
  fixture f{2, 6, 3};
  const auto send = [&](std::uint32_t m, duration at) {
    f.ranking.on_candidate(model_id{m}, opening(at, 50ms), t0 + at);
    f.use(at, 10ms);
  };
  for (std::uint32_t m = 0; m < 5; ++m) send(m, 0ms);  // Three on device 0, two on device 1.
  CHECK(f.granted(1) == device_entry{device_id{1}, 0});
  CHECK(f.granted(4) == device_entry{device_id{0}, 2});
  f.ranking.on_complete({device_id{1}, 0}, t0 + 1ms);
  send(5, 1ms);
  CHECK(f.granted(5) == device_entry{device_id{1}, 0});
  f.ranking.on_complete({device_id{0}, 1}, t0 + 2ms);  // Two and two: the smallest id.
  send(0, 2ms);
  CHECK(f.granted(6) == device_entry{device_id{0}, 1});
  CHECK(f.ranking.idle_entries() == 1);
  CHECK(f.ranking.idle_devices() == 0);
}
TEST_CASE("with a lead, each entry has one batch sent behind its own, and none that overruns") {
  fixture f{1, 4, 2};
  const auto send = [&](std::uint32_t m, duration at, duration length) {
    f.ranking.on_candidate(model_id{m}, opening(at + 1ms, 50ms, 1ms), t0 + at);
    f.use(at, length);
  };
  send(0, 0ms, 10ms);  // In entry 0 until 10 ms.
  send(1, 0ms, 8ms);   // In entry 1 until 8 ms.
  send(2, 1ms, 5ms);
  CHECK(f.ranking.next_wake() == t0 + 7ms);
  f.use(7ms, 5ms);
  REQUIRE(f.sink.grants.size() == 3);
  CHECK(f.granted(2) == device_entry{device_id{0}, 1});
  send(3, 7ms, 5ms);
  CHECK(f.ranking.next_wake() == t0 + 9ms);
  f.use(9ms, 5ms);
  CHECK(f.granted(3) == device_entry{device_id{0}, 0});
  CHECK(f.ranking.outstanding(device_id{0}) == 4);
  f.ranking.on_candidate(model_id{0}, opening(10ms, 50ms, 1ms), t0 + 9ms);
  CHECK(f.ranking.next_wake() == t0 + 9ms);  // Opens, and finds that all entries are taken.
  f.use(12ms, 5ms);
  CHECK(f.sink.grants.size() == 4);
  f.ranking.on_complete({device_id{0}, 1}, t0 + 13ms);  // The next there should end at 18 ms,
  f.ranking.on_complete({device_id{0}, 0}, t0 + 14ms);  // the next here at 19 ms.
  f.use(14ms, 5ms);
  CHECK(f.ranking.next_wake() == t0 + 17ms);
  f.use(18ms + 1ns, 5ms);  // Too late for that one: it overruns. The other ends within the lead.
  REQUIRE(f.sink.grants.size() == 5);
  CHECK(f.granted(4) == device_entry{device_id{0}, 0});
}
TEST_CASE("policies see entries: their number, and the share of their time without work") {
  fixture f{1, 3, 3};
  duration at = 0ms;
  for (int i = 0; i < 200; ++i) {  // One of three entries always busy.
    f.ranking.on_candidate(model_id{0}, opening(at, at + 9ms), t0 + at);
    f.use(at, 10ms);
    at += 10ms;
    f.ranking.on_complete(device_id{0}, t0 + at);
  }
  CHECK(f.sink.grants.back().pool.devices == 3);
  CHECK(f.ranking.devices() == 1);
  CHECK(f.ranking.entries() == 3);
  CHECK(f.ranking.idle_fraction() == doctest::Approx(2.0 / 3).epsilon(0.02));
}
TEST_CASE("an id is used again with another capacity") {
  fixture f{1, 3, 3};
  f.ranking.remove_device(device_id{0}, t0);
  CHECK(f.ranking.idle_entries() == 0);
  CHECK(f.ranking.largest_capacity() == 0);
  f.ranking.add_device(device_id{0}, t0, 2);
  CHECK(f.ranking.idle_entries() == 2);
  CHECK(f.ranking.largest_capacity() == 2);
}
}  // namespace
}  // namespace cohort::deferred::rank_test
