// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/device_entries.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace cohort::deferred::device_entries_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr device_id d0{0};
constexpr device_id d1{1};
constexpr device_id d2{2};

/// A batch that may start at once, and is sent `lead` before its start.
candidate with_lead(duration lead, time_point now = t0) {
  return {.size = 1, .exec_at = now, .latest = now + 1s, .lead = lead, .urgency = now};
}
std::optional<device_entry> found(const device_entries& e, const candidate& c, time_point now) {
  device_entry at;
  return e.find(c, now, at) ? std::optional{at} : std::nullopt;
}
/// Takes what is found for 5 ms.
device_entry take(device_entries& e, time_point now) {
  device_entry at;
  REQUIRE(e.find(with_lead(0ms, now), now, at));
  e.reserve(at);
  e.use(at, now, 5ms);
  return at;
}

TEST_CASE("the device with the fewest batches is found, of those the smallest id, slow ones last") {
  device_entries e;
  e.add(d0, 2);
  e.add(d1, 2);
  e.add(d2, 1);
  CHECK(e.devices() == 3);
  CHECK(e.size() == 5);
  CHECK(e.largest_capacity() == 2);
  CHECK(take(e, t0) == device_entry{d0, 0});
  CHECK(e.idle_devices() == 2);
  e.set_slow(d1, true);
  CHECK(take(e, t0) == device_entry{d2, 0});
  CHECK(take(e, t0) == device_entry{d1, 0});  // Slow, but without any work.
  CHECK(take(e, t0) == device_entry{d0, 1});
  CHECK(take(e, t0) == device_entry{d1, 1});
  CHECK(e.idle() == 0);
  CHECK_FALSE(found(e, with_lead(0ms), t0));
}
TEST_CASE("an entry is found as much before its end as the lead says, once, unless it overruns") {
  device_entries e;
  e.add(d0, 1);
  take(e, t0);  // Until 5 ms.
  CHECK(e.next_end() == t0 + 5ms);
  CHECK_FALSE(found(e, with_lead(2ms), t0 + 3ms - 1ns));
  CHECK(found(e, with_lead(2ms), t0 + 3ms) == device_entry{d0, 0});
  CHECK(e.free_from({d0, 0}, with_lead(2ms)) == t0 + 3ms);
  candidate impatient = with_lead(2ms);
  impatient.latest = t0 + 4ms;
  CHECK_FALSE(found(e, impatient, t0 + 3ms));

  CHECK(e.reserve({d0, 0}) == t0 + 5ms);
  CHECK_FALSE(found(e, with_lead(2ms), t0 + 3ms));
  e.release({d0, 0});  // As before.
  CHECK(found(e, with_lead(2ms), t0 + 3ms));
  e.reserve({d0, 0});
  e.use({d0, 0}, t0 + 5ms, 4ms);
  CHECK(e.outstanding(d0) == device_entries::depth);
  CHECK(e.busy_until({d0, 0}) == t0 + 9ms);
  CHECK_FALSE(found(e, with_lead(1s), t0 + 3ms));  // One ahead is all.
  e.ended({d0, 0}, t0 + 6ms);                      // A millisecond late: so is the other.
  CHECK(e.next_end() == t0 + 10ms);

  e.note_overruns(t0 + 10ms);  // It may still be in time.
  CHECK(found(e, with_lead(2ms), t0 + 10ms));
  e.note_overruns(t0 + 11ms);
  CHECK(e.next_end() == never);
  CHECK_FALSE(found(e, with_lead(2ms), t0 + 11ms));
  e.ended({d0, 0}, t0 + 12ms);
  CHECK(found(e, with_lead(0ms), t0 + 12ms));
  CHECK(e.free_from({d0, 0}, with_lead(2ms)) == t0 + 12ms);
}
TEST_CASE("a device that is away or out of service gets nothing, and ends what it has") {
  device_entries e;
  e.add(d0, 1);
  e.add(d1, 3);
  e.set_in_service(d0, false);
  CHECK_FALSE(e.is_in_service(d0));
  CHECK(e.has(d0));
  CHECK(e.size() == 3);
  CHECK(take(e, t0) == device_entry{d1, 0});
  e.remove(d1);
  CHECK_FALSE(e.has(d1));
  CHECK(e.has_ever(d1));
  CHECK(e.devices() == 1);
  CHECK(e.largest_capacity() == 1);
  CHECK(e.idle() == 0);
  CHECK_FALSE(found(e, with_lead(1s), t0));
  CHECK(e.outstanding(d1) == 1);
  e.ended({d1, 0}, t0 + 5ms);
  e.set_in_service(d0, true);
  CHECK(take(e, t0 + 5ms) == device_entry{d0, 0});
  e.add(d1, 1);  // Under its old id.
  CHECK(take(e, t0 + 5ms) == device_entry{d1, 0});
}
TEST_CASE("an entry that is occupied ends when told") {
  device_entries e;
  e.add(d0, 1);
  e.occupy({d0, 0}, t0 + 3ms, t0);
  CHECK(e.idle() == 0);
  CHECK(e.busy_until({d0, 0}) == t0 + 3ms);
  CHECK(found(e, with_lead(1ms), t0 + 2ms));
  e.ended({d0, 0}, t0 + 4ms);
  CHECK(e.busy_until({d0, 0}) == distant_past);
}

/// The same by looking at every entry of every device.
struct plain {
  struct one {
    std::vector<std::vector<time_point>> ends;  // Of what each entry has, oldest first.
    bool is_in_service = true;
    bool is_slow = false;
  };
  std::vector<one> devices;

  [[nodiscard]] std::optional<device_id> idle() const {
    std::optional<device_id> best;
    const auto worth = [&](std::uint32_t d) {
      const auto idle = std::ranges::count_if(devices[d].ends, &std::vector<time_point>::empty);
      return 2 * (std::ssize(devices[d].ends) - idle) + (devices[d].is_slow ? 1 : 0);
    };
    for (std::uint32_t d = 0; d < devices.size(); ++d) {
      const one& x = devices[d];
      if (!x.is_in_service || std::ranges::none_of(x.ends, &std::vector<time_point>::empty))
        continue;
      if (!best || worth(d) < worth(best->value())) best = device_id{d};
    }
    return best;
  }
  [[nodiscard]] time_point next_end() const {
    time_point next = never;
    for (const one& x : devices) {
      for (const auto& e : x.ends) {
        if (x.is_in_service && e.size() == 1) next = std::min(next, e.front());
      }
    }
    return next;
  }
};
TEST_CASE("random batches, ends and services find what a look at every entry finds") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    device_entries e;
    plain p;
    const std::uint32_t devices = 1 + below(70);
    for (std::uint32_t d = 0; d < devices; ++d) {
      const std::uint32_t capacity = 1 + below(3);
      e.add(device_id{d}, capacity);
      p.devices.push_back({.ends = std::vector<std::vector<time_point>>(capacity)});
    }
    time_point now = t0;
    for (int step = 0; step < 300; ++step) {
      const device_id d{below(devices)};
      plain::one& x = p.devices[d.index()];
      const std::uint32_t entry = below(static_cast<std::uint32_t>(x.ends.size()));
      switch (below(8)) {
        case 0:
          x.is_in_service = !x.is_in_service;
          e.set_in_service(d, x.is_in_service);
          break;
        case 1:
          x.is_slow = !x.is_slow;
          e.set_slow(d, x.is_slow);
          break;
        case 2:
        case 3:  // An end in time: nothing overruns here.
          if (x.ends[entry].size() == 1 && x.ends[entry].front() >= now) {
            now = p.next_end() < x.ends[entry].front() ? now : x.ends[entry].front();
            x.ends[entry].clear();
            e.ended({d, entry}, now);
          }
          break;
        default: {
          device_entry at;
          REQUIRE(e.find(with_lead(1h, now), now, at) == (p.idle() || p.next_end() < now + 1s));
          if (!p.idle()) break;
          REQUIRE(at.device == *p.idle());
          REQUIRE(p.devices[at.device.index()].ends[at.entry].empty());
          REQUIRE(e.reserve(at) <= now);
          const duration takes = std::chrono::milliseconds{1 + below(900)};
          e.use(at, now, takes);
          p.devices[at.device.index()].ends[at.entry].push_back(now + takes);
        }
      }
      REQUIRE(e.next_end() == p.next_end());
    }
  }
}

}  // namespace
}  // namespace cohort::deferred::device_entries_test
