// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/model_shard.hpp>

#include <doctest/doctest.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred::model_shard_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr model_id m{0};

struct recorder {
  std::vector<candidate> candidates;
  std::vector<std::uint32_t> batches;
  std::vector<time_point> starts;
  int used = 0;
  int returned = 0;
  std::vector<request*> dropped;
  request_list running;
  [[nodiscard]] pool_view pool(model_id) const noexcept { return {}; }
  void candidate_changed(model_id, const candidate& c) noexcept { candidates.push_back(c); }
  void dispatch(batch&& b) noexcept {
    batches.push_back(b.size());
    starts.push_back(b.exec_at);
    running.splice(running.end(), b.requests);
  }
  void grant_used(model_id, device_id, time_point, duration) noexcept { ++used; }
  void grant_returned(model_id, device_id) noexcept { ++returned; }
  void drop(request& r) noexcept { dropped.push_back(&r); }
  ~recorder() { running.clear(); }
};

template <class Shard = basic_model_shard<frontrun, head>>
struct fixture {
  explicit fixture(network_delays d = {}) : shard{d} {
    shard.add_model(m, {.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 12ms});
  }
  request& make(duration at, duration slo) {
    request& r = requests.emplace_back();
    r.model = m;
    r.arrival = t0 + at;
    r.deadline = r.arrival + slo;
    return r;
  }
  request& arrive(duration at, duration slo = 12ms) {
    request& r = make(at, slo);
    shard.on_arrival(r, t0 + at, sink);
    return r;
  }
  std::deque<request> requests;
  Shard shard;
  recorder sink;
};

TEST_CASE("a candidate follows the queue: size, opening, last start") {
  fixture f;
  f.arrive(0ms);
  CHECK(f.sink.candidates.back().size == 1);
  CHECK(f.sink.candidates.back().exec_at == t0 + 5ms);  // 12 - l(2).
  CHECK(f.sink.candidates.back().latest == t0 + 6ms);   // 12 - l(1).
  f.arrive(1ms);
  f.arrive(2ms);
  CHECK(f.sink.candidates.back().size == 3);
  CHECK(f.sink.candidates.back().exec_at == t0 + 3ms);
  CHECK(f.sink.candidates.back().latest == t0 + 4ms);
}
/// Its requests end for good when they are dropped, and their memory has other contents then.
struct owner : recorder {
  std::vector<model_id> told;
  void candidate_changed(model_id id, const candidate&) noexcept { told.push_back(id); }
  void drop(request& r) noexcept {
    r.model = model_id{99};
    delete &r;
  }
};

TEST_CASE("a request that is dropped as it arrives may be destroyed by its owner at once") {
  fixture f;
  owner sink;
  const auto arrive = [&](duration at, duration slo) {
    auto* const r = new request;
    r->model = m;
    r->arrival = t0 + at;
    r->deadline = r->arrival + slo;
    f.shard.on_arrival(*r, r->arrival, sink);
  };
  arrive(0ms, 12ms);
  arrive(7ms, 4ms);  // Neither can be in time any more.
  CHECK(f.shard.queued_requests(m) == 0);
  CHECK(sink.told == std::vector<model_id>{m, m});
}
/// That of a shard whose rank tells what waits for a device.
struct told : recorder {
  static constexpr bool tells_what_waits = true;
};
static_assert(telling_what_waits<told> && !telling_what_waits<recorder>);

TEST_CASE("a shard that is told what waits keeps no time until a window opens without a device") {
  fixture f;
  told sink;
  f.shard.on_arrival(f.make(0ms, 12ms), t0, sink);
  CHECK(f.shard.next_wake() == never);
  f.shard.on_waiting(m);
  CHECK(f.shard.next_wake() == t0 + 6ms + 1ns);  // Past the last start.
  f.shard.advance(t0 + 6ms + 1ns, sink);
  CHECK(sink.dropped.size() == 1);
  CHECK(f.shard.next_wake() == never);
  f.shard.on_waiting(m);  // There is nothing any more.
  CHECK(f.shard.next_wake() == never);
  f.shard.on_arrival(f.make(10ms, 6ms), t0 + 10ms, sink);  // Its window is open: 16 - l(2) = 9 ms.
  CHECK(f.shard.next_wake() == t0 + 10ms + 1ns);
}

/// Opens at once, and tells what it was shown of the load.
struct watching {
  load_view* last;
  [[nodiscard]] time_point opens(const batch_view& b) const noexcept {
    *last = b.load;
    return distant_past;
  }
};

TEST_CASE("requests that a driver has left waiting count when they arrived, also if refused") {
  load_view seen;
  basic_model_shard<watching, head> shard{{}, watching{&seen}};
  shard.add_model(m, {.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 1h});
  recorder sink;
  fixture f;
  for (int i = 1; i <= 100; ++i) {  // Each 10 ms, seen five at a time.
    request& r = f.make(i * 10ms, 1h);
    const time_point now = t0 + (i + 4) / 5 * 50ms;
    i % 3 == 0 ? shard.on_refused(r, now) : shard.on_arrival(r, now, sink);
  }
  request& last = f.make(2s, 1h);
  shard.on_arrival(last, t0 + 2s, sink);
  CHECK(seen.variability == doctest::Approx(0));
  for (request& r : f.requests) static_cast<void>(shard.on_cancel(r, t0 + 2s, sink));
}
TEST_CASE("a candidate is refreshed one nanosecond after its last start, not at it") {
  fixture f;
  f.arrive(0ms);
  f.arrive(0ms);
  CHECK(f.shard.next_wake() == t0 + 5ms + 1ns);  // 12 - l(2) = 5.
  f.shard.advance(t0 + 5ms, f.sink);
  CHECK(f.sink.candidates.back().size == 2);
  f.shard.advance(t0 + 5ms + 1ns, f.sink);
  CHECK(f.sink.candidates.back().size == 1);  // The head no longer makes a batch of 2.
  CHECK(f.sink.dropped.empty());
  f.shard.advance(t0 + 6ms + 1ns, f.sink);
  CHECK(f.sink.dropped.size() == 2);  // Neither makes any: their deadlines are equal.
  CHECK(f.shard.queued_requests(m) == 0);
  CHECK(f.sink.candidates.back().is_empty());
  CHECK(f.shard.next_wake() == never);
}
TEST_CASE("a grant before the window opens is returned, one within it is used") {
  fixture f;
  f.arrive(0ms);
  f.shard.on_grant({m, device_id{0}, distant_past, {}}, t0 + 1ms, f.sink);
  CHECK(f.sink.returned == 1);
  f.shard.on_grant({m, device_id{0}, distant_past, {}}, t0 + 5ms, f.sink);
  CHECK(f.sink.used == 1);
  CHECK(f.sink.batches == std::vector<std::uint32_t>{1});
  CHECK(f.requests[0].state == request_state::running);
}
TEST_CASE("a grant for an empty queue is returned") {
  fixture f;
  f.shard.on_grant({m, device_id{0}, distant_past, {}}, t0, f.sink);
  CHECK(f.sink.returned == 1);
}
TEST_CASE("delays are taken from the window and from the deadline") {
  fixture f{{.control = 1ms, .data_per_request = 500us, .response = 1ms}};
  f.arrive(0ms);
  const candidate c = f.sink.candidates.back();
  CHECK(c.latest == t0 + 5ms);        // 12 - 1 - l(1).
  CHECK(c.exec_at == t0 + 4ms);       // 12 - 1 - l(2).
  CHECK(c.send_at() == t0 + 2500us);  // Less control and the data of one.
  CHECK(f.shard.is_feasible(m, t0 + 8500us, t0));
  CHECK_FALSE(f.shard.is_feasible(m, t0 + 8499us, t0));
}
TEST_CASE("a batch on a device that ends later starts then") {
  fixture f;
  f.arrive(0ms);
  f.shard.on_grant({m, device_id{0}, t0 + 5500us, {}}, t0 + 5ms, f.sink);
  CHECK(f.sink.starts.at(0) == t0 + 5500us);
}
TEST_CASE("on a slow device a batch is as long as its first request is in time there") {
  for (const auto& [slowness, size] : {std::pair{1.0, 4U}, {1.25, 3U}, {1.4, 2U}, {4.0, 1U}}) {
    CAPTURE(slowness);
    fixture f;
    for (int i = 0; i < 4; ++i) f.arrive(0ms, 30ms);
    // The window opens at 30 - l(5) = 20 ms; 10 ms are left: 10, 8, 7.1 and 2.5 of its own.
    f.shard.on_grant({.model = m,
                      .device = device_id{0},
                      .free_at = distant_past,
                      .pool = {},
                      .slowness = slowness},
                     t0 + 20ms, f.sink);
    CHECK(f.sink.batches == std::vector<std::uint32_t>{size});
    CHECK(f.shard.queued_requests(m) == 4 - size);
    CHECK(f.sink.dropped.empty());
  }
}
TEST_CASE("cancelling takes a waiting request back and leaves others alone") {
  fixture f;
  request& a = f.arrive(0ms);
  request& b = f.arrive(1ms);
  CHECK(f.shard.on_cancel(a, t0 + 1ms, f.sink));
  CHECK(a.state == request_state::idle);
  CHECK(b.state == request_state::queued);
  CHECK(f.sink.candidates.back().latest == t0 + 13ms - 6ms);
  CHECK_FALSE(f.shard.on_cancel(a, t0 + 1ms, f.sink));
}
TEST_CASE("removing a model drops what waits, and its slot is free") {
  fixture f;
  f.arrive(0ms);
  f.shard.remove_model(m, f.sink);
  CHECK(f.sink.dropped.size() == 1);
  CHECK_FALSE(f.shard.is_served(m));
  f.shard.on_grant({m, device_id{0}, distant_past, {}}, t0, f.sink);
  CHECK(f.sink.returned == 1);
}
TEST_CASE("a shard rejects an SLO that no batch meets, and negative delays") {
  basic_model_shard<> s;
  CHECK_THROWS_AS(
      s.add_model(m, {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 5ms}),
      config_error);
  CHECK_THROWS_AS(basic_model_shard<>({.control = -1ns}), config_error);
}
TEST_CASE("sequence numbers count a model's arrivals from 1") {
  fixture f;
  CHECK(f.arrive(0ms).sequence == 1);
  CHECK(f.arrive(1ms).sequence == 2);
}
}  // namespace
}  // namespace cohort::deferred::model_shard_test
