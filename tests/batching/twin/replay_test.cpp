// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/twin/replay.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

namespace cohort::batching::replay_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
using points = std::vector<std::vector<stage_point>>;
using list = std::vector<double>;

/// When each request ended, in milliseconds; -1 if it did not.
struct ends : null_replay_watch {
  list at;
  time_point until = never;
  std::size_t launches = 0;
  std::size_t finishes = 0;

  void launched(const stage_launch&, time_point) noexcept { ++launches; }
  void finished(const device_item&, time_point) noexcept { ++finishes; }
  void ended(const staged_request& r, outcome how, time_point now) noexcept {
    CHECK(how == outcome::completed);
    CHECK(at[r.tag] == -1);
    at[r.tag] = to_ms(now - t0);
  }
  [[nodiscard]] bool goes_on(time_point now) const noexcept { return now < until; }
};

struct arrival {
  double ms;
  std::uint32_t bucket = 0;
};
template <class Policy>
ends run(const stage_profile& p, const std::vector<arrival>& all, const pipeline_options& o,
         const Policy& policy, const replay_options& on = {}, time_point until = never) {
  std::vector<staged_arrival> arrivals;
  for (const arrival& a : all) arrivals.push_back({t0 + from_ms(a.ms), a.bucket});
  ends e;
  e.at.assign(all.size(), -1);
  e.until = until;
  pipeline<Policy> x{p, o, policy};
  replay(x, p, arrivals, on, e);
  CHECK((until != never || x.is_idle()));
  return e;
}
constexpr pipeline_options one_row{.entry = entry_rule::idle};

TEST_CASE("requests of one instant come together, and each item costs a hand-over more") {
  const stage_profile p{points(2, {{.batch = 4, .time = 10ms}}), 4};
  const std::vector<arrival> all{{0}, {0}, {4}, {50}};
  const ends e = run(p, all, one_row, plain_policy{4});
  CHECK(e.at == list{20, 20, 40, 70});
  CHECK(e.launches == 6);
  CHECK(e.finishes == 6);
  CHECK(run(p, all, one_row, plain_policy{4}, {.overhead = 1ms}).at == list{22, 22, 44, 72});
}
TEST_CASE("who comes when a stage ends comes first, and may still join the row") {
  const stage_profile p{points(2, {{.batch = 4, .time = 10ms}}), 4};
  const diversity always{p, {.split = split_rule::none, .stretch = stretch_rule::always}};
  // The second runs stage 0 from 10 to 20, then both stage 1. Later the row has entered that.
  CHECK(run(p, {{0}, {10}}, one_row, always).at == list{30, 30});
  CHECK(run(p, {{0}, {10.5}}, one_row, always).at == list{20, 40});
}
TEST_CASE("a stage takes the time of those who do not skip it, and a hand-over at least") {
  const std::vector<stage_point> stage{
      {.batch = 1, .time = 1ms}, {.batch = 2, .time = 2ms}, {.batch = 4, .time = 4ms}};
  const stage_profile p{points{stage, stage}, 4};
  struct skips : plain_policy {
    std::uint64_t from = 0;
    verdict judge(const staged_request& r, std::uint32_t) const noexcept {
      return r.tag >= from ? verdict::skip_next : verdict::go_on;
    }
  };
  const std::vector<arrival> four(4);
  CHECK(run(p, four, one_row, skips{{4}, 4}, {.overhead = 1ms}).at == list{10, 10, 10, 10});
  CHECK(run(p, four, one_row, skips{{4}, 2}, {.overhead = 1ms}).at == list{8, 8, 8, 8});
  CHECK(run(p, four, one_row, skips{{4}, 0}, {.overhead = 1ms}).at == list{6, 6, 6, 6});
}
TEST_CASE("times and shares are those of the row's bucket") {
  const stage_profile p{points{{{.batch = 1, .bucket = 0, .time = 10ms, .share = 0.25},
                                {.batch = 1, .bucket = 1, .time = 20ms, .share = 0.75}}},
                        1, 2};
  CHECK(run(p, {{0, 0}, {0, 1}}, one_row, plain_policy{1}).at == list{10, 30});
  const pipeline_options lanes{.buffer_sets = 2, .executors_per_set = true};
  constexpr replay_options shared{.parallel = true};
  CHECK(run(p, {{0, 0}, {0, 1}}, lanes, plain_policy{1}, shared).at == list{10, 20});
  // Two long ones are half as much again as the device has.
  CHECK(run(p, {{0, 1}, {0, 1}}, lanes, plain_policy{1}, shared).at == list{30, 30});
}
TEST_CASE("a window is closed when it is due, though nothing else happens") {
  const stage_profile p{points{{{.batch = 4, .time = 10ms}}}, 4};
  CHECK(run(p, {{0}, {2}}, {.window = 5ms}, plain_policy{4}).at == list{15, 15});
}
TEST_CASE("a watch that has seen enough ends a run before the next instant") {
  const stage_profile p{points{{{.batch = 4, .time = 10ms}}}, 4};
  const ends e = run(p, {{0}, {20}, {40}}, one_row, plain_policy{4}, {}, t0 + 30ms);
  CHECK(e.at == list{10, -1, -1});
  CHECK(e.launches == 2);
}

}  // namespace
}  // namespace cohort::batching::replay_test
