// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/sharded/shard_half.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <support/joined_shards.hpp>
#include <support/random_source.hpp>
#include <support/scheduler_suite.hpp>

namespace cohort::deferred::shard_half_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

using adaptive_half =
    basic_shard_half<adaptive_window, drop_head, adaptive_target, adaptive_priority>;
using eager_half = basic_shard_half<eager, head>;
static_assert(batch_scheduler<test::joined_shards<2>>);

TEST_CASE("shards and a rank with mailboxes between them keep what holds of every scheduler") {
  test::check_random_operations<test::joined_shards<1>>({});
  test::check_random_operations<test::joined_shards<3>>({});
  const network_delays delays{
      .control = 200us, .data_per_request = 50us, .response = 300us, .wake_margin = 100us};
  test::check_random_operations<test::joined_shards<2>>(delays);
  test::check_random_operations<test::joined_shards<2, adaptive_half>>(delays);
  test::check_random_operations<test::joined_shards<2, eager_half>>({});
}

/// Random arrivals of a model on three devices: what was sent, when and where.
template <class Scheduler>
auto sent_by(std::uint64_t seed) {
  test::random_source random{seed};
  test::driver<Scheduler> d{Scheduler{}};
  d.scheduler.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 25ms});
  for (int i = 0; i < 3; ++i) d.scheduler.add_device(t0);
  time_point at = t0;
  for (int i = 0; i < 600; ++i) {
    request& r = d.add();
    at += 1us * random.below(1600);
    d.run_until(at - 1ns);
    d.now = at;
    r.arrival = at;
    r.deadline = at + 10ms + 1ms * random.below(20);
    d.scheduler.on_arrival(r, at, d);
    while (d.next_end().first <= at) d.finish_first(d.next_end().second);
    d.scheduler.advance(at, d);
  }
  d.run_until(at + 1s);
  return std::pair{d.sent, d.dropped};
}
TEST_CASE("with one model the halves decide what the scheduler of one value decides") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const auto joined = sent_by<scheduler>(seed);
    REQUIRE(joined.first.size() > 40);
    REQUIRE(sent_by<test::joined_shards<1>>(seed) == joined);
  }
}

/// How many of 40,000 requests of 10 models, nearly all that 8 devices can do, are dropped.
template <class Scheduler>
std::size_t dropped_by(std::uint64_t seed) {
  test::random_source random{seed};
  test::driver<Scheduler> d{Scheduler{}};
  for (int i = 0; i < 10; ++i) {
    d.scheduler.add_model({.latency = latency_curve{linear_latency{500us, 50us}, 32}, .slo = 5ms});
  }
  for (int i = 0; i < 8; ++i) d.scheduler.add_device(t0);
  time_point at = t0;
  for (int i = 0; i < 40000; ++i) {
    request& r = d.add();
    at += 1ns * random.below(17600);
    d.run_until(at - 1ns);
    d.now = at;
    r.model = model_id{random.below(10U)};
    r.arrival = at;
    r.deadline = at + 5ms;
    d.scheduler.on_arrival(r, at, d);
    while (d.next_end().first <= at) d.finish_first(d.next_end().second);
    d.scheduler.advance(at, d);
  }
  d.run_until(at + 1s);
  return d.dropped.size();
}
TEST_CASE("words that wait cost no requests, whatever the window") {
  const auto check = [](std::size_t whole, std::size_t joined) {
    CAPTURE(whole);
    CAPTURE(joined);
    CHECK(joined <= whole + whole / 10 + 40);
  };
  check(dropped_by<basic_scheduler<eager, head>>(1),
        dropped_by<test::joined_shards<2, eager_half>>(1));
  check(dropped_by<adaptive_scheduler>(1), dropped_by<test::joined_shards<2, adaptive_half>>(1));
  check(dropped_by<scheduler>(1), dropped_by<test::joined_shards<2>>(1));
}

}  // namespace
}  // namespace cohort::deferred::shard_half_test
