// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/endpoint_table.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::cluster::endpoint_table_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a report grants a lease, and an endpoint is lost once when it runs out") {
  endpoint_table t{3s};
  const endpoint_id e = t.add();
  CHECK_FALSE(t.has_lease(e));
  CHECK(t.on_report(e, {.sequence = 1}, t0) == report_effect::appeared);
  CHECK(t.next_loss() == t0 + 3s);
  CHECK(t.on_report(e, {.sequence = 2}, t0 + 1s) == report_effect::renewed);
  CHECK(t.take_lost(t0 + 3s) == std::nullopt);
  CHECK(t.take_lost(t0 + 4s) == e);
  CHECK(t.take_lost(t0 + 4s) == std::nullopt);
  CHECK_FALSE(t.has_lease(e));
  CHECK(t.on_report(e, {.sequence = 3}, t0 + 5s) == report_effect::appeared);
}
TEST_CASE("reports that are doubled or out of order neither renew a lease nor change gauges") {
  endpoint_table t{3s};
  const endpoint_id e = t.add();
  t.on_report(e, {.life = 2, .sequence = 5, .gauges = {.running = 4}}, t0);
  CHECK(t.on_report(e, {.life = 2, .sequence = 5}, t0 + 1s) == report_effect::ignored);
  CHECK(t.on_report(e, {.life = 2, .sequence = 4}, t0 + 1s) == report_effect::ignored);
  CHECK(t.on_report(e, {.life = 1, .sequence = 9}, t0 + 1s) == report_effect::ignored);
  CHECK(t.last(e).gauges.running == 4);
  CHECK(t.next_loss() == t0 + 3s);
}
TEST_CASE("a higher life says that the endpoint has started anew") {
  endpoint_table t{3s};
  const endpoint_id e = t.add();
  t.on_report(e, {.life = 1, .sequence = 7}, t0);
  CHECK(t.on_report(e, {.life = 2, .sequence = 1}, t0 + 1s) == report_effect::restarted);
  CHECK(t.on_report(e, {.life = 1, .sequence = 8}, t0 + 1s) == report_effect::ignored);
  CHECK(t.take_lost(t0 + 4s) == e);  // A life that begins after the loss is no news.
  CHECK(t.on_report(e, {.life = 3, .sequence = 1}, t0 + 5s) == report_effect::appeared);
}
TEST_CASE("a removed endpoint, or one that never was, is not heard") {
  endpoint_table t{3s};
  const endpoint_id e = t.add();
  t.on_report(e, {.sequence = 1}, t0);
  t.remove(e);
  CHECK(t.on_report(e, {.sequence = 2}, t0) == report_effect::ignored);
  CHECK(t.on_report(endpoint_id{9}, {.sequence = 2}, t0) == report_effect::ignored);
  CHECK(t.next_loss() == never);
  CHECK(test::gist_of<config_error>([] { endpoint_table{0s}; }) ==
        "endpoint_table: lease ... above 0");
}
TEST_CASE("whatever the order of reports, the newest counts") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    endpoint_table t{1s};
    const endpoint_id e = t.add();
    std::pair<std::uint64_t, std::uint64_t> newest{};
    time_point heard = distant_past;
    time_point now = t0;
    for (int i = 0; i < 100; ++i) {
      now += 1ms * random.below(400);
      while (t.take_lost(now)) CHECK(now >= heard + 1s);
      const endpoint_report r{.life = 1 + random.below(3U), .sequence = 1 + random.below(50U)};
      const bool is_newer = std::pair{r.life, r.sequence} > newest;
      CHECK((t.on_report(e, r, now) != report_effect::ignored) == is_newer);
      if (is_newer) {
        newest = {r.life, r.sequence};
        heard = now;
      }
      CHECK(t.has_lease(e) == (now < heard + 1s));
      CHECK(std::pair{t.last(e).life, t.last(e).sequence} == newest);
    }
  }
}

}  // namespace
}  // namespace cohort::cluster::endpoint_table_test
