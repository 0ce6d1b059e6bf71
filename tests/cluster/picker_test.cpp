// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/picker.hpp>

#include <doctest/doctest.h>

#include <cohort/core/latency_model.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <support/complaint.hpp>
#include "answer_log.hpp"

namespace cohort::cluster::picker_test {
namespace {
using namespace std::chrono_literals;
using deferred_picker = basic_picker<deferred::basic_scheduler<deferred::frontrun, deferred::head>>;
using eager_picker = basic_picker<deferred::basic_scheduler<deferred::eager, deferred::head>>;
constexpr time_point t0{};

/// l(b) = b + 5 ms, SLO 12 ms: a batch of two is to start between 4 and 5 ms after its first
/// request. Endpoints of one instance, which report at 0; a term without an end.
template <class Picker>
struct fixture {
  explicit fixture(std::uint32_t endpoints = 1, const picker_options& o = options()) : picker{o} {
    model = picker.add_model({.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 6},
                                             .slo = 12ms,
                                             .queue_capacity = 4}});
    for (std::uint32_t i = 0; i < endpoints; ++i) ids.push_back(picker.add_endpoint(1));
    picker.on_grant(1, never, t0, log);
    for (const endpoint_id e : ids) report(e, 0ms);
  }
  static picker_options options() { return {.lease = 1s, .settle = 2s}; }

  void report(endpoint_id e, duration at, endpoint_gauges gauges = {}, bool is_ready = true) {
    picker.on_report(e, {.sequence = ++sequence, .is_ready = is_ready, .gauges = gauges}, t0 + at,
                     log);
    picker.advance(t0 + at, log);
  }
  void open(std::uint64_t id, duration at) {
    picker.on_stream(request_id{id}, model, t0 + at, t0 + at, log);
    picker.advance(t0 + at, log);
  }
  void finish(std::uint64_t id, duration at, bool failed = false) {
    picker.on_finished(request_id{id}, failed, t0 + at, log);
    picker.advance(t0 + at, log);
  }
  void close(std::uint64_t id, duration at) {
    picker.on_closed(request_id{id}, t0 + at, log);
    picker.advance(t0 + at, log);
  }
  void wait_until(duration at) {
    while (picker.next_wake() <= t0 + at) picker.advance(picker.next_wake(), log);
  }
  /// Kinds of answers, in order: p(ick), s(hed), u(navailable).
  [[nodiscard]] std::string kinds() const {
    std::string out;
    for (const picker_answer& a : log.answers) out += "psu"[static_cast<int>(a.kind)];
    return out;
  }

  Picker picker;
  answer_log log;
  model_id model;
  std::vector<endpoint_id> ids;
  std::uint64_t sequence = 0;
};

TEST_CASE("streams are held, and those of a batch are answered at once with one endpoint") {
  fixture<deferred_picker> f;
  f.open(1, 0ms);
  f.open(2, 1ms);
  // A third would need 8 ms: the window opens at 12 - 8.
  CHECK(f.picker.next_wake() == t0 + 4ms);
  f.wait_until(4ms - 1ns);
  CHECK(f.log.answers.empty());
  f.wait_until(4ms);
  REQUIRE(f.kinds() == "pp");
  CHECK(f.log.answers[0].stream == request_id{1});
  CHECK(f.log.answers[1].stream == request_id{2});
  CHECK(f.log.answers[0].batch == f.log.answers[1].batch);
  CHECK(f.log.answers[0].size == 2);
  CHECK(f.log.answers[0].endpoint == f.ids[0]);
  CHECK(f.log.answers[0].epoch == 1);
  f.finish(1, 11ms);
  CHECK(f.picker.batches_of(f.ids[0]) == 1);
  f.finish(2, 13ms + 1ns);
  CHECK(f.log.ends[1] == std::vector{outcome::completed});
  CHECK(f.log.ends[2] == std::vector{outcome::late});
  CHECK(f.picker.batches_of(f.ids[0]) == 0);
  CHECK(f.picker.live_streams() == 0);
}
TEST_CASE("an endpoint gets its next batch when the last stream of its batch has ended") {
  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.open(2, 1ms);
  CHECK(f.kinds() == "p");
  f.finish(1, 6ms);
  CHECK(f.kinds() == "pp");  // 6 + 6 ms is before 1 + 12.
  CHECK(f.log.answers[0].batch != f.log.answers[1].batch);
}
TEST_CASE("a stream that cannot be in time any more is shed") {
  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.open(2, 0ms);
  f.wait_until(20ms);
  CHECK(f.kinds() == "ps");
  CHECK(f.log.ends[2] == std::vector{outcome::dropped});
  for (std::uint64_t id = 3; id <= 7; ++id) f.open(id, 20ms);
  CHECK(f.kinds() == "pss");  // Four may wait.
  CHECK(f.picker.counts().shed == 2);
}
TEST_CASE("without an endpoint or a term, streams are unavailable") {
  fixture<eager_picker> none{0};
  none.open(1, 0ms);
  CHECK(none.kinds() == "u");
  CHECK(none.log.ends[1] == std::vector{outcome::failed});

  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.open(2, 0ms);
  f.picker.on_other_term(2, t0 + 1ms, f.log);
  CHECK(f.kinds() == "pu");  // That in a batch goes on.
  f.open(3, 1ms);
  CHECK(f.kinds() == "puu");
  f.finish(1, 6ms);
  CHECK(f.log.ends[1] == std::vector{outcome::completed});
  f.picker.on_stream(request_id{4}, model_id{7}, t0, t0, f.log);
  CHECK(f.kinds() == "puuu");
}
TEST_CASE("messages that come twice, late or out of order change nothing") {
  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.open(1, 1ms);
  f.finish(9, 1ms);
  f.open(2, 1ms);
  f.finish(2, 2ms);  // It is held: this cannot be.
  CHECK(f.kinds() == "p");
  f.finish(1, 6ms);
  f.finish(1, 6ms);
  f.close(1, 7ms);
  f.open(1, 8ms);
  f.close(3, 8ms);
  f.open(3, 9ms);  // It was closed before.
  CHECK(f.log.count(1) == 1);
  CHECK(f.log.count(3) == 0);
  CHECK(f.log.ends[1].size() == 1);
  CHECK(f.picker.counts().stray == 7);
}
TEST_CASE(
    "a stream that the gateway closes gets no answer, and one in a batch keeps the endpoint busy") {
  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.open(2, 1ms);
  f.close(2, 2ms);
  CHECK(f.kinds() == "p");
  CHECK(f.log.ends[2] == std::vector{outcome::cancelled});
  f.close(1, 3ms);
  CHECK(f.log.ends[1] == std::vector{outcome::cancelled});
  CHECK(f.picker.batches_of(f.ids[0]) == 1);
  f.open(3, 3ms);
  f.wait_until(6ms - 1ns);
  CHECK(f.kinds() == "p");
  f.wait_until(6ms);  // l(1).
  CHECK(f.kinds() == "pp");
}
TEST_CASE("an endpoint whose lease runs out fails what it had, and gets work when it is idle") {
  fixture<eager_picker> f{2};
  f.open(1, 999ms);
  CHECK(f.log.answers[0].endpoint == f.ids[0]);
  f.report(f.ids[1], 999ms);
  f.wait_until(1s);
  CHECK(f.log.ends[1] == std::vector{outcome::failed});
  CHECK_FALSE(f.picker.is_in_service(f.ids[0]));
  CHECK(f.picker.counts().lost_endpoints == 1);
  f.finish(1, 1001ms);  // Too late.
  CHECK(f.log.ends[1].size() == 1);
  f.report(f.ids[0], 1100ms, {.running = 1});
  CHECK_FALSE(f.picker.is_in_service(f.ids[0]));
  f.report(f.ids[0], 1200ms);
  CHECK(f.picker.is_in_service(f.ids[0]));
}
TEST_CASE("an endpoint that stays busy gets work when it must have settled") {
  fixture<eager_picker> f{2};
  f.wait_until(1s);
  for (const duration at : {1500ms, 2400ms}) f.report(f.ids[0], at, {.waiting = 1});
  f.wait_until(3s - 1ns);
  CHECK_FALSE(f.picker.is_in_service(f.ids[0]));
  f.wait_until(3s);
  CHECK(f.picker.is_in_service(f.ids[0]));
  CHECK_FALSE(f.picker.is_in_service(f.ids[1]));
}
TEST_CASE("an endpoint that has started anew has lost what it had and gets work at once") {
  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.picker.on_report(f.ids[0], {.life = 2, .gauges = {.running = 3}}, t0 + 1ms, f.log);
  CHECK(f.log.ends[1] == std::vector{outcome::failed});
  f.open(2, 2ms);
  CHECK(f.kinds() == "pp");
}
TEST_CASE("an endpoint that is not ready ends what it has and gets no more") {
  fixture<eager_picker> f{2};
  f.open(1, 0ms);
  f.report(f.ids[0], 1ms, {}, false);
  f.finish(1, 6ms);
  CHECK(f.log.ends[1] == std::vector{outcome::completed});
  f.open(2, 7ms);
  CHECK(f.log.answers[1].endpoint == f.ids[1]);
  f.report(f.ids[1], 8ms, {}, false);
  f.open(3, 8ms);
  CHECK(f.kinds() == "ppu");
  f.finish(2, 13ms);
  f.report(f.ids[1], 14ms);
  f.open(4, 14ms);
  CHECK(f.log.answers[3].endpoint == f.ids[1]);
}
TEST_CASE("an endpoint that never ends a batch gets work after it reports that it is idle") {
  fixture<eager_picker> f{2};
  f.open(1, 0ms);
  // Suspect 3 times 6 ms and 250 after its start, hanging after four times as long.
  for (int i = 1; i <= 20; ++i) {
    for (const endpoint_id e : f.ids) f.report(e, 100ms * i, {.running = e == f.ids[0]});
    f.wait_until(100ms * i);
  }
  CHECK(f.log.ends[1] == std::vector{outcome::failed});
  CHECK_FALSE(f.picker.is_in_service(f.ids[0]));
  CHECK(f.picker.batches_of(f.ids[0]) == 1);
  f.report(f.ids[0], 2001ms);
  CHECK(f.picker.batches_of(f.ids[0]) == 0);
  f.wait_until(2600ms);
  f.report(f.ids[0], 2600ms);  // It is the probe.
  CHECK(f.picker.is_in_service(f.ids[0]));
}
TEST_CASE("a new term trusts no endpoint that has not reported in it") {
  fixture<eager_picker> f;
  f.picker.on_other_term(2, t0, f.log);
  f.picker.on_grant(3, never, t0 + 10ms, f.log);
  f.open(1, 10ms);
  CHECK(f.kinds() == "u");
  f.report(f.ids[0], 20ms, {.running = 2});
  f.open(2, 20ms);
  CHECK(f.kinds() == "uu");
  f.report(f.ids[0], 30ms);
  f.open(3, 30ms);
  CHECK(f.kinds() == "uup");
  CHECK(f.log.answers[2].epoch == 3);
}
TEST_CASE("a term that ends refuses what is held at that instant") {
  fixture<deferred_picker> f;
  f.picker.on_other_term(1, t0, f.log);
  f.picker.on_grant(2, t0 + 4ms, t0, f.log);
  f.report(f.ids[0], 0ms);
  f.open(1, 1ms);
  f.wait_until(4ms);
  CHECK(f.kinds() == "u");
  CHECK_FALSE(f.picker.leads());
}
TEST_CASE("a removed endpoint is lost for good") {
  fixture<eager_picker> f;
  f.open(1, 0ms);
  f.picker.remove_endpoint(f.ids[0], t0 + 1ms, f.log);
  CHECK(f.log.ends[1] == std::vector{outcome::failed});
  f.report(f.ids[0], 2ms);
  CHECK_FALSE(f.picker.is_in_service(f.ids[0]));
}
TEST_CASE("options outside their range are refused") {
  CHECK(test::gist_of<config_error>([] { eager_picker{{.settle = -1s}}; }) ==
        "picker: settle ... at least 0");
  eager_picker p;
  CHECK(test::gist_of<config_error>([&] { p.add_endpoint(0); }) ==
        "picker: ... at least 1 instance");
}

}  // namespace
}  // namespace cohort::cluster::picker_test
