// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/device_desk.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/sharded/exchange.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cohort::engine::device_desk_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr model_id m0{0};

struct noting_backend {
  void launch(const deferred::batch& b) {
    if (throws) throw std::runtime_error{"no room"};
    launched.push_back(b.at());
  }
  [[nodiscard]] bool abandon(const deferred::batch&) noexcept { return true; }
  void probe(device_id d, model_id) noexcept { probed.push_back(d); }
  std::vector<batch_ticket> launched;
  std::vector<device_id> probed;
  bool throws = false;
};

/// A rank of one device, and a shard that answers its grants with batches of two.
struct fixture {
  fixture() {
    doors.open(m0, {.capacity = 100});
    device = rank.add_device(t0);
    desk.add_device(device, 1);
  }
  /// The model has something to send; @returns Whether it was granted the device.
  bool wants(time_point now, duration lead = 0ms) {
    word.best = {.size = 2, .exec_at = now, .latest = now + 1h, .lead = lead, .urgency = now};
    between.say(m0, word);
    turn(now);
    rank.step(now);
    deferred::rank_mail mail;
    if (!between.take_mail(0, mail)) return false;
    granted = mail.number;
    return true;
  }
  /// It answers with a batch, which is on its way.
  void answers(time_point now) {
    word.best = {};
    word.answer = {.number = granted, .size = 2, .exec_at = now, .expected = 1ms, .work = 1ms};
    between.say(m0, word);
    deferred::batch b{};
    b.model = m0;
    b.device = device;
    b.exec_at = now;
    b.expected = 1ms;
    for (int i = 0; i < 2; ++i) b.requests.push_back(requests.emplace_back());
    sent.push_back(std::move(b));
  }
  bool turn(time_point now) {
    return desk.turn(
        rank, now,
        [this](deferred::batch& b) {
          if (sent.empty()) return false;
          b = std::move(sent.front());
          sent.pop_front();
          return true;
        },
        [this](returned_requests&& back) {
          backs.push_back({back.requests.size(), back.failed, back.has_run});
          back.requests.clear();
        });
  }
  struct back {
    std::size_t requests;
    bool failed;
    bool has_run;
    friend bool operator==(const back&, const back&) = default;
  };

  deferred::exchange between{1, 1};
  deferred::rank_half rank{between};
  deferred::model_word word{.best = {}, .tenure = 1};
  std::uint32_t granted = 0;
  sharded_doors doors{1, [](model_id) {}};
  noting_backend backend;
  device_desk<noting_backend> desk{
      backend, doors, {.floor = 1ms, .patience = 2, .first_probe = 10ms}};
  std::deque<request> requests;
  std::deque<deferred::batch> sent;
  std::vector<back> backs;
  device_id device;
};

TEST_CASE("a batch is launched, ends, and its requests go back to their shard") {
  fixture f;
  CHECK(f.desk.has_device());
  REQUIRE(f.wants(t0));
  f.answers(t0);
  CHECK(f.turn(t0));
  REQUIRE(f.backend.launched.size() == 1);
  CHECK(f.rank.devices().outstanding(f.device) == 1);
  CHECK_FALSE(f.desk.has_work());
  f.desk.complete(f.backend.launched[0], false);
  CHECK(f.desk.has_work());
  CHECK(f.turn(t0 + 1ms));
  CHECK(f.backs == std::vector<fixture::back>{{2, false, true}});
  CHECK(f.rank.devices().outstanding(f.device) == 0);
  f.desk.complete(f.backend.launched[0], false);
  f.turn(t0 + 1ms);
  CHECK(f.desk.devices().stray_ends() == 1);
}
TEST_CASE("a launch that throws has failed") {
  fixture f;
  f.backend.throws = true;
  REQUIRE(f.wants(t0));
  f.answers(t0);
  f.turn(t0);
  CHECK(f.backs == std::vector<fixture::back>{{2, true, true}});
  CHECK(f.rank.devices().outstanding(f.device) == 0);
}
TEST_CASE("one that was granted a device which hangs by now waits on; the device comes back") {
  fixture f;
  REQUIRE(f.wants(t0));
  f.answers(t0);
  f.turn(t0);
  // Granted ahead of the end, which does not come: it hangs after 8 ms.
  REQUIRE(f.wants(t0 + 1ms, 1ms));
  CHECK(f.desk.next_event() == t0 + 4ms);
  f.turn(t0 + 4ms);
  f.turn(t0 + 8ms);
  CHECK(f.backs == std::vector<fixture::back>{{2, true, true}});
  CHECK_FALSE(f.desk.has_device());
  CHECK(f.desk.hanging_devices() == 1);
  f.answers(t0 + 8ms);
  f.turn(t0 + 8ms);
  CHECK(f.backend.launched.size() == 1);
  CHECK(f.backs.back() == fixture::back{2, false, false});

  f.desk.complete(f.backend.launched[0], false);
  f.turn(t0 + 20ms);
  CHECK(f.rank.devices().outstanding(f.device) == 0);
  CHECK(f.desk.hanging_devices() == 0);
  f.turn(t0 + 20ms);
  CHECK(f.backend.probed == std::vector{f.device});
  f.desk.complete_probe(f.device, false);
  f.turn(t0 + 21ms);
  CHECK(f.desk.has_device());
  CHECK(f.rank.devices().is_in_service(f.device));
}
TEST_CASE("what wants the backend to be driven is seen, whatever comes of it") {
  fixture f;
  int published = 0;
  f.desk.nudge([&] { ++published; });
  CHECK(published == 1);
  CHECK(f.desk.has_work());
  CHECK(f.turn(t0));
  CHECK_FALSE(f.desk.has_work());
}
TEST_CASE("a device that is removed gets no batch any more") {
  fixture f;
  REQUIRE(f.wants(t0));
  f.desk.remove_device(f.device, f.rank, t0);
  f.desk.remove_device(f.device, f.rank, t0);
  CHECK_FALSE(f.desk.has_device());
  f.answers(t0);
  f.turn(t0);
  CHECK(f.backend.launched.empty());
  CHECK(f.backs == std::vector<fixture::back>{{2, false, false}});
  CHECK(f.rank.devices().outstanding(f.device) == 0);
}

}  // namespace
}  // namespace cohort::engine::device_desk_test
