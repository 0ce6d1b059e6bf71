// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/pipeline.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/diversity.hpp>
#include <cohort/sim/rivals/staged_rivals.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

#include "random_staging.hpp"

namespace cohort::batching::pipeline_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
using points = std::vector<std::vector<stage_point>>;

std::vector<sim::staged_arrival> at_ms(const std::vector<double>& times,
                                       const std::vector<std::uint32_t>& buckets = {}) {
  std::vector<sim::staged_arrival> a;
  for (std::size_t i = 0; i < times.size(); ++i) {
    a.push_back({t0 + from_ms(times[i]), buckets.empty() ? 0 : buckets[i]});
  }
  return a;
}

template <class Policy>
sim::staged_result run(const stage_profile& p, const std::vector<sim::staged_arrival>& arrivals,
                       const pipeline_options& o, const Policy& policy, bool parallel = false) {
  return sim::run_staged(
      p, arrivals, {.parallel = parallel},
      [&](sim::staged_counts c) {
        return pipeline<Policy, sim::staged_counts>{p, o, policy, std::move(c)};
      },
      [](time_point) {});
}
std::vector<double> ms(const sim::staged_result& r) {
  std::vector<double> m;
  for (const duration d : r.latency) m.push_back(to_ms(d));
  return m;
}
using list = std::vector<double>;

// Section 3 of DVABatch, T = 10 ms, at most 4 requests in a batch.
TEST_CASE("case I: two batches of unlike lengths in parallel give 2.5 T, serial ones 3 T") {
  const std::vector<stage_point> op{{.batch = 4, .bucket = 0, .time = 5ms, .share = 0.75},
                                    {.batch = 4, .bucket = 1, .time = 10ms, .share = 0.25}};
  const stage_profile p{points{op, op, op, op}, 4, 2};
  const auto arrivals = at_ms({0, 0, 0, 0}, {0, 0, 0, 1});
  for (const input_rule rule : {input_rule::clusters, input_rule::filled}) {
    const diversity policy{
        p, {.input = rule, .split = split_rule::none, .stretch = stretch_rule::none}};
    pipeline_options o{.buffer_sets = 2, .executors_per_set = true};
    CHECK(ms(run(p, arrivals, o, policy, true)) == list{20, 20, 20, 40});
    o.buffer_sets = 1;
    CHECK(ms(run(p, arrivals, o, policy, true)) == list{20, 20, 20, 60});
    o.window = 0ms;
    o.buffer_sets = 2;
    CHECK(ms(run(p, arrivals, o, policy, true)) == list{20, 20, 20, 40});
  }
  const sim::whole_batch padded{{.batch_max = 4}};
  CHECK(ms(run(p, arrivals, {.entry = entry_rule::idle}, padded, true)) == list{40, 40, 40, 40});
}

stage_profile operator_diversity() {
  points stages{{{.batch = 4, .time = 10ms}}};
  for (int i = 0; i < 3; ++i) {
    stages.push_back({{.batch = 1, .time = 2500us},
                      {.batch = 2, .time = 5ms},
                      {.batch = 3, .time = 7500us},
                      {.batch = 4, .time = 10ms}});
  }
  return {stages, 4};
}

/// Halves at every boundary once: the control that must give another figure.
struct halve_once : plain_policy {
  static std::uint32_t split(const hand_over_view& v, std::span<std::uint32_t> sizes) noexcept {
    if (v.row.size < 2) return 0;
    sizes[0] = v.row.size - v.row.size / 2;
    sizes[1] = v.row.size / 2;
    return 2;
  }
};

TEST_CASE("case II: splitting into four after A gives 2.875 T, a halving at each boundary 3 T") {
  const stage_profile p = operator_diversity();
  const auto arrivals = at_ms({0, 0, 0, 0});
  for (const std::uint32_t sets : {1U, 2U}) {
    const pipeline_options o{.buffer_sets = sets, .entry = entry_rule::idle};
    for (const split_rule rule : {split_rule::halving, split_rule::planned}) {
      const diversity policy{p, {.split = rule, .stretch = stretch_rule::none}};
      const sim::staged_result r = run(p, arrivals, o, policy);
      CHECK(ms(r) == list{17.5, 25, 32.5, 40});
      CHECK(r.split == 1);
      CHECK(r.mean_batch == std::vector<double>{4, 1, 1, 1});
    }
    CHECK(ms(run(p, arrivals, o, halve_once{{.batch_max = 4}})) == list{20, 25, 35, 40});
    CHECK(ms(run(p, arrivals, o, plain_policy{4})) == list{40, 40, 40, 40});
  }
}
TEST_CASE("case II: with a tolerance of 0 halving misfires on rounding; equality splits") {
  points stages{
      {{.batch = 4, .time = 10ms}},
      {{.batch = 1, .time = 2501us}, {.batch = 2, .time = 5001us}, {.batch = 4, .time = 10ms}}};
  const stage_profile p{stages, 4};
  const auto arrivals = at_ms({0, 0, 0, 0});
  const pipeline_options o{.entry = entry_rule::idle};
  const auto split = [&](double eps) {
    return run(p, arrivals, o,
               diversity{p,
                         {.split = split_rule::halving,
                          .stretch = stretch_rule::none,
                          .split_tolerance = eps}})
        .split;
  };
  CHECK(split(0) == 0);
  CHECK(split(0.01) == 1);
  CHECK_THROWS_AS(diversity(p, {.split_tolerance = 1}), config_error);
}

/// Case II on the table alone, without executors: one item at a time on a device that takes the
/// latest stage that has one (depth first), or the earliest (breadth first).
std::vector<double> run_table(const stage_profile& p, bool breadth_first) {
  meta_ops<> ops{{.stages = p.stages(), .batch_max = p.batch_max(), .max_rows = 8}};
  std::vector<staged_request> all(4);
  for (std::uint32_t i = 0; i < 4; ++i) all[i].tag = i;
  REQUIRE(ops.make(all, t0));
  std::vector<double> ends(4);
  time_point now = t0;
  for (;;) {
    std::uint32_t stage = p.stages();
    for (std::uint32_t s = 0; s < p.stages(); ++s) {
      if (!ops.queue(s).empty() && (stage == p.stages() || !breadth_first)) stage = s;
    }
    if (stage == p.stages()) return ends;
    const item work = ops.take(stage);
    now += p.time(stage, work.count);
    for (std::uint32_t k = work.start; k < work.start + work.count; ++k) {
      ends[ops.table()[work.batch].slots[k].request.tag] = to_ms(now - t0);
    }
    switch (ops.finish(stage, work, now)) {
      case progress::whole:
        if (stage == 0) {
          REQUIRE(ops.split(stage, work.batch, std::vector<std::uint32_t>{1, 1, 1, 1}, now, false));
        } else {
          ops.hand_over(stage, work.batch, now);
        }
        break;
      case progress::ended:
        ops.remove(work.batch);
        break;
      default:
        FAIL("nothing is stretched here");
    }
  }
}
TEST_CASE("case II: the parts breadth first would give 3.625 T; the buffers do not allow it") {
  const stage_profile p = operator_diversity();
  CHECK(run_table(p, false) == list{17.5, 25, 32.5, 40});
  CHECK(run_table(p, true) == list{32.5, 35, 37.5, 40});
}

stage_profile flat() {
  const std::vector<stage_point> op{{.batch = 4, .time = 10ms}};
  return {points{op, op, op, op}, 4};
}
TEST_CASE("case III: stretching gives 5.25 T, waiting for the window 8 T") {
  const stage_profile p = flat();
  const auto arrivals = at_ms({0, 50, 50, 50});
  pipeline_options o{.window = 40ms, .stretch = {.longest_wait = 15ms}};
  const diversity policy{p, {.split = split_rule::none, .stretch = stretch_rule::always}};
  for (const std::uint32_t sets : {1U, 2U}) {
    o.buffer_sets = sets;
    const sim::staged_result r = run(p, arrivals, o, policy);
    CHECK(ms(r) == list{90, 40, 40, 40});
    CHECK(r.made == 1);
    CHECK(r.stretched == 1);
    CHECK(r.held == 1);
    CHECK(ms(run(p, at_ms({0, 45, 45, 45}), o, policy)) != list{90, 40, 40, 40});
    CHECK(ms(run(p, arrivals, o, plain_policy{4})) == list{80, 80, 80, 80});
  }
  o.stretch.longest_wait = 10ms;  // Elapsed = T: refused.
  CHECK(ms(run(p, arrivals, o, policy)) == list{80, 80, 80, 80});
}
TEST_CASE("case III: requests of one row that wait for stage 1 are merged") {
  const stage_profile p = flat();
  const pipeline_options o{.window = 40ms, .stretch = {.longest_wait = 15ms}};
  const diversity policy{p, {.split = split_rule::none, .stretch = stretch_rule::always}};
  CHECK(ms(run(p, at_ms({0, 50, 50.5, 51}), o, policy)) == list{100, 50, 49.5, 49});
}
TEST_CASE("planned stretch merges the same with late binding") {
  const stage_profile p = flat();
  const pipeline_options o{.entry = entry_rule::idle};
  const diversity policy{p, {.split = split_rule::none}};
  // 1 runs A 0-10; 2 to 4 came at 10: they run A 10-20, then all B, C, D 20-50.
  CHECK(ms(run(p, at_ms({0, 10, 10, 10}), o, policy)) == list{50, 40, 40, 40});
  // At 30 one stage is left: a newcomer would cost 1 30 ms to save itself 10.
  CHECK(ms(run(p, at_ms({0, 30}), o, policy)) == list{40, 50});
}
TEST_CASE("a window closes early when the largest batch waits, and with it the row's time begins") {
  const stage_profile p = flat();
  const pipeline_options o{.window = 40ms};
  CHECK(ms(run(p, at_ms({0, 1, 2, 3}), o, plain_policy{4})) == list{43, 42, 41, 40});
  CHECK(ms(run(p, at_ms({0, 1, 2, 3, 3}), o, plain_policy{4})) == list{43, 42, 41, 40, 80});
}
TEST_CASE("whole_batch waits for its delay, or for the largest batch") {
  const stage_profile p = flat();
  const pipeline_options o{.entry = entry_rule::idle};
  CHECK(ms(run(p, at_ms({0, 5}), o, sim::whole_batch{{4}, 0ms})) == list{40, 75});
  CHECK(ms(run(p, at_ms({0, 5}), o, sim::whole_batch{{4}, 7ms})) == list{47, 42});
  CHECK(ms(run(p, at_ms({0, 1, 2, 3}), o, sim::whole_batch{{4}, 7ms})) == list{43, 42, 41, 40});
}
TEST_CASE("lazy_batch catches up only while the oldest stays within its SLO") {
  const stage_profile p = flat();
  const pipeline_options o{.entry = entry_rule::idle};
  CHECK(ms(run(p, at_ms({0, 10}), o, sim::lazy_batch{{4}, &p, 50ms})) == list{50, 40});
  CHECK(ms(run(p, at_ms({0, 10}), o, sim::lazy_batch{{4}, &p, 49ms})) == list{40, 70});
}
TEST_CASE("requests that leave early end at their stage and the rest goes on smaller") {
  points stages;
  for (int i = 0; i < 2; ++i)
    stages.push_back(
        {{.batch = 1, .time = 1ms}, {.batch = 2, .time = 2ms}, {.batch = 4, .time = 4ms}});
  const stage_profile p{stages, 4};
  struct odd_leave : plain_policy {
    static verdict judge(const staged_request& r, std::uint32_t) noexcept {
      return r.tag % 2 == 1 ? verdict::leave : verdict::go_on;
    }
  };
  const auto r =
      run(p, at_ms({0, 0, 0, 0}), {.entry = entry_rule::idle}, odd_leave{{.batch_max = 4}});
  CHECK(ms(r) == list{6, 4, 6, 4});
  CHECK(r.mean_batch == std::vector<double>{4, 2});
}

TEST_CASE("those who skip a stage are gathered, cost nothing there, and are one batch after it") {
  points stages(3);
  for (auto& s : stages) {
    s = {{.batch = 1, .time = 1ms}, {.batch = 2, .time = 2ms}, {.batch = 4, .time = 4ms}};
  }
  const stage_profile p{stages, 4};
  struct odd_skip : plain_policy {
    static verdict judge(const staged_request& r, std::uint32_t stage) noexcept {
      return stage == 0 && r.tag % 2 == 1 ? verdict::skip_next : verdict::go_on;
    }
  };
  const auto arrivals = at_ms({0, 0, 0, 0});
  const odd_skip policy{{.batch_max = 4}};
  // Stage 0 on four, stage 1 on two, stage 2 on four.
  CHECK(ms(run(p, arrivals, {.entry = entry_rule::idle}, policy)) == list{10, 10, 10, 10});
  struct all_skip : plain_policy {
    static verdict judge(const staged_request&, std::uint32_t stage) noexcept {
      return stage == 0 ? verdict::skip_next : verdict::go_on;
    }
  };
  CHECK(ms(run(p, arrivals, {.entry = entry_rule::idle}, all_skip{{4}})) == list{8, 8, 8, 8});
}

/// Ends as told; what is launched waits until the test completes it.
struct manual_sink {
  std::vector<stage_launch> launched;
  std::map<std::uint64_t, std::vector<outcome>> ends;
  bool throws = false;
  void launch(const stage_launch& l) {
    if (throws) throw std::runtime_error{"no"};
    launched.push_back(l);
  }
  void end(const staged_request& r, outcome how, time_point) { ends[r.tag].push_back(how); }
  void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {}
};

TEST_CASE("a cancelled straggler releases the held row") {
  const stage_profile p = flat();
  pipeline<diversity> x{p,
                        {.stretch = {}},
                        diversity{p, {.split = split_rule::none, .stretch = stretch_rule::always}}};
  manual_sink sink;
  const staged_request first{.tag = 1};
  x.on_arrival(std::span{&first, 1}, t0);
  x.advance(t0, sink);
  x.on_complete(0, 0, t0, sink);
  x.advance(t0, sink);
  REQUIRE(sink.launched.size() == 2);
  const staged_request late{.tag = 2};
  x.on_arrival(std::span{&late, 1}, t0);
  CHECK(x.on_cancel(2, t0, sink));
  CHECK_FALSE(x.on_cancel(2, t0, sink));
  CHECK_FALSE(x.on_cancel(3, t0, sink));
  x.on_complete(0, 1, t0, sink);
  x.advance(t0, sink);
  REQUIRE(sink.launched.size() == 3);
  CHECK(sink.launched[2].stage == 2);
  CHECK(sink.launched[2].count == 1);
  CHECK(sink.ends[2] == std::vector{outcome::cancelled});
}
TEST_CASE("a straggler is judged after each stage, as the others were") {
  struct second_leaves : plain_policy {
    bool stretches_on_arrival(const batch_row&, std::uint32_t) const noexcept { return true; }
    verdict judge(const staged_request& r, std::uint32_t stage) const noexcept {
      return r.tag == 2 && stage == 0 ? verdict::leave : verdict::go_on;
    }
  };
  const stage_profile p{points(3, {{.batch = 4, .time = 1ms}}), 4};
  pipeline<second_leaves> x{p, {}, second_leaves{{4}}};
  manual_sink sink;
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  x.on_arrival(std::span{two}.first(1), t0);
  x.advance(t0, sink);
  x.on_complete(0, 0, t0, sink);
  x.advance(t0, sink);
  x.on_arrival(std::span{two}.last(1), t0);  // It joins the row, which is in stage 1.
  CHECK(x.waiting() == 0);
  x.on_complete(0, 1, t0, sink);
  x.advance(t0, sink);
  REQUIRE(sink.launched.size() == 3);
  CHECK(sink.launched[2].stage == 0);
  x.on_complete(0, 0, t0, sink);
  CHECK(sink.ends[2] == std::vector{outcome::completed});
  x.advance(t0, sink);
  CHECK(sink.launched.back().stage == 2);
  CHECK(sink.launched.back().count == 1);
}
TEST_CASE("a request cancelled in a stage ends when the stage does; in the last, it completes") {
  const stage_profile p{points{{{.batch = 4, .time = 1ms}}, {{.batch = 4, .time = 1ms}}}, 4};
  pipeline<> x{p, {}, plain_policy{4}};
  manual_sink sink;
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  x.on_arrival(two, t0);
  x.advance(t0, sink);
  CHECK(x.on_cancel(1, t0, sink));
  CHECK_FALSE(x.on_cancel(1, t0, sink));
  CHECK(sink.ends.empty());
  x.on_complete(0, 0, t0, sink);
  CHECK(sink.ends[1] == std::vector{outcome::cancelled});
  x.advance(t0, sink);
  CHECK(sink.launched[1].count == 1);
  CHECK(x.on_cancel(2, t0, sink));
  x.on_complete(0, 1, t0, sink);
  CHECK(sink.ends[2] == std::vector{outcome::completed});
  x.advance(t0, sink);
  CHECK(x.is_idle());
}
/// Case III on a device that runs items one by one, in the order in which they became ready: one
/// request at 0, three at 50 ms, and which of two things at one instant the pipeline hears first.
std::vector<double> run_case_3(bool completion_first, std::uint32_t sets) {
  const stage_profile p = flat();
  pipeline<diversity> x{p,
                        {.buffer_sets = sets, .window = 40ms, .stretch = {.longest_wait = 15ms}},
                        diversity{p, {.split = split_rule::none, .stretch = stretch_rule::always}}};
  struct : manual_sink {
    std::vector<double> at = std::vector<double>(4);
    void end(const staged_request& r, outcome, time_point now) { at[r.tag] = to_ms(now - t0); }
  } sink;
  const std::vector<staged_request> all{{.tag = 0}, {.tag = 1}, {.tag = 2}, {.tag = 3}};
  x.on_arrival(std::span{all}.first(1), t0);
  x.advance(t0, sink);
  std::size_t started = 0;
  time_point busy_until = never;
  for (time_point now = t0; now <= t0 + 200ms; now += 10ms) {
    const bool arrive = now == t0 + 50ms;
    if (arrive && !completion_first) x.on_arrival(std::span{all}.subspan(1), now);
    if (busy_until == now) {
      busy_until = never;
      x.on_complete(0, sink.launched[started++].stage, now, sink);
      x.advance(now, sink);
    }
    if (arrive && completion_first) x.on_arrival(std::span{all}.subspan(1), now);
    x.advance(now, sink);
    if (busy_until == never && started < sink.launched.size()) busy_until = now + 10ms;
  }
  CHECK(x.is_idle());
  return {sink.at[0], sink.at[1] - 50, sink.at[2] - 50, sink.at[3] - 50};
}
TEST_CASE(
    "case III: heard before a completion of the same instant arrivals give 5.25 T, else 6.25") {
  for (const std::uint32_t sets : {1U, 2U}) {
    CHECK(run_case_3(false, sets) == list{90, 40, 40, 40});
    CHECK(run_case_3(true, sets) == list{100, 50, 50, 50});
  }
}
TEST_CASE("a stage that fails or cannot be launched fails its requests only") {
  const stage_profile p{points{{{.batch = 2, .time = 1ms}}, {{.batch = 2, .time = 1ms}}}, 2};
  pipeline<> x{p, {}, plain_policy{2}};
  manual_sink sink;
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  x.on_arrival(four, t0);
  x.advance(t0, sink);
  x.on_complete(0, 0, t0, sink, true);
  x.advance(t0, sink);
  CHECK(sink.ends[1] == std::vector{outcome::failed});
  CHECK(sink.ends[2] == std::vector{outcome::failed});
  REQUIRE(sink.launched.size() == 2);
  CHECK(sink.launched[1].slots[0].request.tag == 3);
  sink.throws = true;
  x.on_complete(0, 0, t0, sink);
  x.advance(t0, sink);
  CHECK(sink.ends[3] == std::vector{outcome::failed});
  CHECK(x.is_idle());
}
TEST_CASE("bad options are errors, and a full waiting list refuses the rest") {
  const stage_profile p = flat();
  CHECK_THROWS_AS((pipeline<>{p, {.buffer_sets = 0}, {}}), config_error);
  CHECK_THROWS_AS((pipeline<>{p, {.window = -1ms}, {}}), config_error);
  CHECK_THROWS_AS((pipeline<>{p, {.max_waiting = 0}, {}}), config_error);
  CHECK_THROWS_AS((pipeline<>{p, {.max_rows = 0}, {}}), config_error);
  pipeline<> x{p, {.max_waiting = 2}, plain_policy{4}};
  const std::vector<staged_request> three(3);
  CHECK(x.on_arrival(three, t0) == 2);
}

/// Rows run through stages as far as `to` says; at every other hand-over they are asked.
struct runs : plain_policy {
  using run_to_of = runs;
  std::uint32_t to = 0;
  int* asked = nullptr;
  std::uint32_t run_to(const batch_row&, std::uint32_t stage) const noexcept {
    return stage == 0 ? to : stage;
  }
  std::uint32_t split(const hand_over_view&, std::span<std::uint32_t>) const noexcept {
    ++*asked;
    return 0;
  }
};
struct may_run_through {
  static constexpr bool runs_through = true;
};
struct through_sink : manual_sink, may_run_through {};

TEST_CASE("a row runs through stages in one launch, and is asked when it is through") {
  const stage_profile p{points(5, {{.batch = 4, .time = 1ms}}), 4};
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  for (const std::uint32_t sets : {1U, 2U}) {
    int asked = 0;
    pipeline<runs> x{p, {.buffer_sets = sets, .entry = entry_rule::idle}, runs{{4}, 2, &asked}};
    through_sink sink;
    x.on_arrival(two, t0);
    x.advance(t0, sink);
    REQUIRE(sink.launched.size() == 1);
    CHECK(sink.launched[0].stage == 0);
    CHECK(sink.launched[0].last == 2);
    x.on_complete(0, 0, t0, sink);
    x.advance(t0, sink);
    REQUIRE(sink.launched.size() == 2);
    CHECK(sink.launched[1].stage == 3);
    CHECK(sink.launched[1].last == 3);
    CHECK(asked == 1);
    x.on_complete(0, 3, t0, sink);
    x.advance(t0, sink);
    x.on_complete(0, 4, t0, sink);
    x.advance(t0, sink);
    CHECK(asked == 2);
    CHECK(sink.ends[1] == std::vector{outcome::completed});
    CHECK(x.is_idle());
  }
}
TEST_CASE("a row does not run through where others may come, or the sink cannot") {
  const stage_profile p{points(3, {{.batch = 4, .time = 1ms}}), 4};
  const staged_request one{.tag = 1};
  int asked = 0;
  const auto last = [&](entry_rule entry, auto sink) {
    pipeline<runs> x{p, {.entry = entry}, runs{{4}, 2, &asked}};
    x.on_arrival({&one, 1}, t0);
    x.advance(t0, sink);
    return sink.launched.at(0).last;
  };
  CHECK(last(entry_rule::idle, through_sink{}) == 2);
  CHECK(last(entry_rule::stage_free, through_sink{}) == 0);
  CHECK(last(entry_rule::idle, manual_sink{}) == 0);
}
struct halves : plain_policy {
  std::uint32_t split(const hand_over_view& v, std::span<std::uint32_t> sizes) const noexcept {
    if (v.stage != 0) return 0;
    sizes[0] = sizes[1] = v.row.size / 2;
    return 2;
  }
  using run_to_of = halves;
  std::uint32_t run_to(const batch_row&, std::uint32_t stage) const noexcept {
    return stage == 0 ? 0 : 9;
  }
};
TEST_CASE("each part of a row that was split runs through in one launch") {
  const stage_profile p{points(5, {{.batch = 4, .time = 1ms}}), 4};
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  for (const std::uint32_t sets : {1U, 2U}) {
    for (const bool serial : {false, true}) {
      pipeline<halves> x{
          p,
          {.buffer_sets = sets, .entry = entry_rule::idle, .serial_children = serial},
          halves{{4}}};
      through_sink sink;
      x.on_arrival(four, t0);
      x.advance(t0, sink);
      x.on_complete(0, 0, t0, sink);
      x.advance(t0, sink);
      REQUIRE(sink.launched.size() == 2);
      CHECK(sink.launched[1].stage == 1);
      CHECK(sink.launched[1].last == 4);
      CHECK(sink.launched[1].count == 2);
      x.on_complete(0, 1, t0, sink);
      x.advance(t0, sink);
      CHECK(sink.ends.size() == 2);
      REQUIRE(sink.launched.size() == 3);
      CHECK(sink.launched[2].stage == 1);
      CHECK(sink.launched[2].last == 4);
      x.on_complete(0, 1, t0, sink);
      x.advance(t0, sink);
      CHECK(sink.ends.size() == 4);
      CHECK(x.is_idle());
    }
  }
}
TEST_CASE("serial parts of a row run one after the other, to the end") {
  const stage_profile p{points(4, {{.batch = 2, .time = 1ms}}), 2};
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  for (const bool serial : {false, true}) {
    pipeline<halves> x{p, {.serial_children = serial}, halves{{2}}};
    manual_sink sink;
    x.on_arrival(two, t0);
    x.advance(t0, sink);
    for (std::uint32_t s = 0; s < 3; ++s) {
      x.on_complete(0, s, t0, sink);
      x.advance(t0, sink);
    }
    // The first is in the last stage, and the buffers around stage 1 are free again.
    CHECK(sink.launched.size() == (serial ? 4 : 5));
    CHECK(std::ranges::count(sink.launched, 1U, &stage_launch::stage) == (serial ? 1 : 2));
    x.on_complete(0, 3, t0, sink);
    x.advance(t0, sink);
    CHECK(std::ranges::count(sink.launched, 1U, &stage_launch::stage) == 2);
  }
}
TEST_CASE("a lane takes its own rows, whoever waits for another lane before them") {
  const stage_profile p{points(2, {{.batch = 2, .time = 1ms, .share = 0.5}}), 2};
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  pipeline<halves> x{p, {.executors_per_set = true}, halves{{2}}};
  manual_sink sink;
  x.on_arrival(four, t0);
  x.advance(t0, sink);
  REQUIRE(sink.launched.size() == 2);
  x.on_complete(0, 0, t0, sink);
  x.advance(t0, sink);  // Its second part waits for stage 1.
  REQUIRE(sink.launched.size() == 3);
  x.on_complete(1, 0, t0, sink);
  x.advance(t0, sink);
  REQUIRE(sink.launched.size() == 4);
  CHECK(sink.launched[3].lane == 1);
  CHECK(sink.launched[3].stage == 1);
  CHECK(sink.launched[3].slots[0].request.tag == 3);
}
struct single_runs_through : plain_policy {
  using run_to_of = single_runs_through;
  std::uint32_t run_to(const batch_row& r, std::uint32_t stage) const noexcept {
    return r.size > 1 && stage == 0 ? 0 : 9;
  }
};
TEST_CASE("a row does not run through beside one that does") {
  const stage_profile p{points(5, {{.batch = 4, .time = 1ms}}), 4};
  pipeline<single_runs_through> x{
      p, {.entry = entry_rule::idle, .window = 1ms}, single_runs_through{{4}}};
  through_sink sink;
  const std::vector<staged_request> three{{.tag = 1}, {.tag = 2}, {.tag = 3}};
  x.on_arrival(std::span{three}.first(2), t0);
  x.advance(t0 + 1ms, sink);
  x.on_arrival(std::span{three}.last(1), t0 + 1ms);
  x.on_complete(0, 0, t0 + 1ms, sink);
  x.advance(t0 + 1ms, sink);
  REQUIRE(sink.launched.size() == 2);
  CHECK(sink.launched[1].stage == 1);
  CHECK(sink.launched[1].last == 4);
  x.advance(t0 + 2ms, sink);  // The window of the third closes.
  REQUIRE(sink.launched.size() == 3);
  CHECK(sink.launched[2].stage == 0);
  CHECK(sink.launched[2].last == 0);
  CHECK(sink.launched[2].set != sink.launched[1].set);
  x.on_complete(0, 0, t0 + 2ms, sink);
  x.on_complete(0, 1, t0 + 2ms, sink);
  x.advance(t0 + 2ms, sink);
  CHECK(sink.ends.size() == 2);
  REQUIRE(sink.launched.size() == 4);  // The oldest now.
  CHECK(sink.launched[3].stage == 1);
  CHECK(sink.launched[3].last == 4);
  x.on_complete(0, 1, t0 + 2ms, sink);
  x.advance(t0 + 2ms, sink);
  CHECK(x.is_idle());
}
TEST_CASE("the oldest row runs through whatever works behind it") {
  const stage_profile p{points(5, {{.batch = 4, .time = 1ms}}), 4};
  pipeline<single_runs_through> x{
      p, {.entry = entry_rule::idle, .window = 1ms}, single_runs_through{{4}}};
  through_sink sink;
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  x.on_arrival(std::span{four}.first(2), t0);
  x.advance(t0 + 1ms, sink);
  x.on_arrival(std::span{four}.last(2), t0 + 1ms);
  x.advance(t0 + 2ms, sink);  // The second row waits for stage 0.
  REQUIRE(sink.launched.size() == 1);
  x.on_complete(0, 0, t0 + 2ms, sink);
  x.advance(t0 + 2ms, sink);
  REQUIRE(sink.launched.size() == 3);
  for (const auto& l : std::span{sink.launched}.subspan(1)) CHECK(l.last == (l.stage == 1 ? 4 : 0));
}
TEST_CASE("what is cancelled or fails in a run through stages ends when the run does") {
  const stage_profile p{points(3, {{.batch = 4, .time = 1ms}}), 4};
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  for (const bool fails : {false, true}) {
    int asked = 0;
    pipeline<runs> x{p, {.entry = entry_rule::idle}, runs{{4}, 9, &asked}};
    through_sink sink;
    x.on_arrival(two, t0);
    x.advance(t0, sink);
    CHECK(sink.launched[0].last == 2);
    CHECK(x.on_cancel(1, t0, sink));
    CHECK(sink.ends.empty());
    x.on_complete(0, 0, t0, sink, fails);
    x.advance(t0, sink);
    CHECK(sink.ends[1] == std::vector{fails ? outcome::failed : outcome::cancelled});
    CHECK(sink.ends[2] == std::vector{fails ? outcome::failed : outcome::completed});
    CHECK(sink.launched.size() == 1);
    CHECK(asked == 0);
    CHECK(x.is_idle());
  }
}
struct eager_join : runs {
  using run_to_of = eager_join;
  bool stretches_on_arrival(const batch_row&, std::uint32_t) const noexcept { return true; }
};
TEST_CASE("nobody joins a row that runs through stages, also on arrival") {
  const stage_profile p{points(3, {{.batch = 4, .time = 1ms}}), 4};
  int asked = 0;
  pipeline<eager_join> x{p, {.entry = entry_rule::idle}, eager_join{{{4}, 1, &asked}}};
  through_sink sink;
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  x.on_arrival(std::span{two}.first(1), t0);
  x.advance(t0, sink);
  x.on_arrival(std::span{two}.last(1), t0);
  CHECK(x.waiting() == 1);
}

/// One request a row, in its own bucket. Writes down what it is told.
struct notes {
  std::vector<double> shares;  // At each entry.
  std::vector<double> rates;   // At each entry, and at each question whether to stretch or split.
  std::vector<std::uint32_t> may_join;
};
struct one_by_one : plain_policy {
  notes* told = nullptr;
  entry_decision entry(const entry_view& v) const noexcept {
    told->shares.push_back(v.running_share);
    return {.count = 1, .bucket = v.waiting[0].bucket};
  }
};
TEST_CASE("the share of what is done, or cannot be launched, is free again") {
  // Two stages of a tenth and a fifth of the device, by bucket; three rows side by side.
  const stage_profile p{points{{{.batch = 1, .bucket = 0, .time = 1ms, .share = 0.1},
                                {.batch = 1, .bucket = 1, .time = 1ms, .share = 0.2}}},
                        1, 2};
  notes told;
  pipeline<one_by_one> x{p, {.buffer_sets = 3, .executors_per_set = true}, {{1}, &told}};
  manual_sink sink;
  const auto arrive = [&](std::uint64_t tag, std::uint32_t bucket) {
    const staged_request r{.tag = tag, .bucket = bucket};
    x.on_arrival({&r, 1}, t0);
    x.advance(t0, sink);
  };
  arrive(1, 0);
  sink.throws = true;
  arrive(2, 1);
  CHECK(sink.ends[2] == std::vector{outcome::failed});
  sink.throws = false;
  arrive(3, 1);  // Beside the first, alone.
  REQUIRE(told.shares.size() == 3);
  CHECK(told.shares[1] == doctest::Approx(0.1));
  CHECK(told.shares[2] == doctest::Approx(0.1));
  x.on_complete(0, 0, t0, sink);
  arrive(4, 0);
  CHECK(told.shares.back() == doctest::Approx(0.2));
  // 0.1 + 0.2 - 0.1 - 0.2 is not 0.
  x.on_complete(1, 0, t0, sink);
  x.on_complete(0, 0, t0, sink);
  CHECK(x.is_idle());
  arrive(5, 0);
  CHECK(told.shares.back() == 0);
}

TEST_CASE("who arrives joins a row only if nobody waits, and only if it is no longer") {
  const stage_profile p{
      points(2, {{.batch = 4, .bucket = 0, .time = 1ms}, {.batch = 4, .bucket = 1, .time = 2ms}}),
      4, 2};
  const diversity always{p, {.split = split_rule::none, .stretch = stretch_rule::always}};
  manual_sink sink;
  const std::vector<staged_request> short_ones{{.tag = 1}, {.tag = 2}, {.tag = 3}};
  const staged_request one{.tag = 9, .bucket = 1};
  {
    pipeline<diversity> x{p, {.entry = entry_rule::idle}, always};
    x.on_arrival(short_ones, t0);
    x.advance(t0, sink);
    x.on_arrival(std::span{short_ones}.first(2), t0);  // Three and two are more than four.
    CHECK(x.waiting() == 2);
    x.on_arrival(std::span{short_ones}.last(1), t0);  // There is room, but two were first.
    CHECK(x.waiting() == 3);
    CHECK(x.in_flight() == 3);
  }
  pipeline<diversity> x{p, {.entry = entry_rule::idle}, always};
  x.on_arrival(short_ones, t0);
  x.advance(t0, sink);
  x.on_arrival({&one, 1}, t0);
  CHECK(x.waiting() == 1);
  CHECK(x.in_flight() == 3);
}

/// Whoever may join a row at a hand-over does.
struct joins_at_hand_over : plain_policy {
  notes* told = nullptr;
  entry_decision entry(const entry_view& v) const noexcept {
    told->rates.push_back(v.rate);
    return {.count = v.eligible};
  }
  std::uint32_t stretch(const hand_over_view& v) const noexcept {
    told->rates.push_back(v.rate);
    told->may_join.push_back(v.may_join);
    return v.may_join;
  }
  std::uint32_t split(const hand_over_view& v, std::span<std::uint32_t>) const noexcept {
    told->rates.push_back(v.rate);
    return 0;
  }
};
TEST_CASE("a longer request does not join a row at a hand-over") {
  const stage_profile p{
      points(2, {{.batch = 4, .bucket = 0, .time = 1ms}, {.batch = 4, .bucket = 1, .time = 2ms}}),
      4, 2};
  notes told;
  pipeline<joins_at_hand_over> x{p, {.entry = entry_rule::idle}, {{4}, &told}};
  manual_sink sink;
  const std::vector<staged_request> all{{.tag = 1}, {.tag = 2, .bucket = 1}, {.tag = 3}};
  x.on_arrival(std::span{all}.first(1), t0);
  x.advance(t0, sink);
  x.on_arrival(std::span{all}.last(2), t0);
  x.on_complete(0, 0, t0, sink);
  CHECK(told.may_join == std::vector<std::uint32_t>{2});
  CHECK(x.waiting() == 1);
  CHECK(x.in_flight() == 2);
  x.advance(t0, sink);
  CHECK(sink.launched.back().slots[0].request.tag == 3);
}
TEST_CASE("who waits in an open window cannot join a row at a hand-over") {
  const stage_profile p = flat();
  notes told;
  pipeline<joins_at_hand_over> x{p, {.window = 10ms}, {{4}, &told}};
  manual_sink sink;
  const std::vector<staged_request> two{{.tag = 1}, {.tag = 2}};
  x.on_arrival(std::span{two}.first(1), t0);
  x.advance(t0 + 10ms, sink);
  REQUIRE(sink.launched.size() == 1);
  x.on_arrival(std::span{two}.last(1), t0 + 11ms);
  x.on_complete(0, 0, t0 + 12ms, sink);
  CHECK(told.may_join.empty());  // Not even asked.
  x.advance(t0 + 12ms, sink);
  x.advance(t0 + 21ms, sink);  // Closed: it may join at the next.
  x.on_complete(0, 1, t0 + 22ms, sink);
  CHECK(told.may_join.empty());  // It was made a row, since stage 0 was free.
}
TEST_CASE("a policy is told the rate at entry and at each hand-over") {
  const stage_profile p{points(2, {{.batch = 4, .time = 1ms}}), 4};
  notes told;
  struct asks : joins_at_hand_over {
    std::uint32_t stretch(const hand_over_view& v) const noexcept {
      told->rates.push_back(v.rate);
      return 0;
    }
  };
  pipeline<asks> x{p, {.entry = entry_rule::idle}, {{{4}, &told}}};
  manual_sink sink;
  const std::vector<staged_request> all(17);
  x.on_arrival(std::span{all}.first(2), t0);
  x.advance(t0, sink);
  for (std::size_t i = 1; i <= 15; ++i) {
    x.on_arrival(std::span{all}.subspan(1 + i, 1), t0 + i * 1ms);
  }
  x.on_complete(0, 0, t0 + 15ms, sink);
  x.advance(t0 + 15ms, sink);
  x.on_complete(0, 1, t0 + 15ms, sink);
  x.advance(t0 + 15ms, sink);
  // From two arrivals it is not known; then there were 15 gaps of 1 ms and one of none.
  REQUIRE(told.rates.size() == 4);
  CHECK(told.rates[0] == 0);
  for (std::size_t i = 1; i < 4; ++i) CHECK(told.rates[i] == doctest::Approx(16.0 / 15));
}
TEST_CASE("a plain policy pads its row to the longest that it takes") {
  const stage_profile p{points(1, {{.batch = 2, .bucket = 0, .time = 1ms},
                                   {.batch = 2, .bucket = 1, .time = 2ms},
                                   {.batch = 2, .bucket = 2, .time = 4ms}}),
                        2, 3};
  // The third waits for the first two, of 2 ms, and takes 4.
  CHECK(ms(run(p, at_ms({0, 0, 0}, {0, 1, 2}), {.entry = entry_rule::idle}, plain_policy{2})) ==
        list{2, 2, 6});
}

TEST_CASE("a callback that throws loses nothing") {
  struct odd_leave : plain_policy {
    verdict judge(const staged_request& r, std::uint32_t) const noexcept {
      return r.tag % 2 == 1 ? verdict::leave : verdict::go_on;
    }
  };
  struct throwing_sink : manual_sink {
    void end(const staged_request& r, outcome how, time_point now) {
      manual_sink::end(r, how, now);
      throw std::runtime_error{"end"};
    }
    void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {
      throw std::runtime_error{"move"};
    }
  };
  const stage_profile p{points(2, {{.batch = 4, .time = 1ms}}), 4};
  pipeline<odd_leave> x{p, {}, odd_leave{{4}}};
  throwing_sink sink;
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  x.on_arrival(four, t0);
  x.advance(t0, sink);
  x.on_complete(0, 0, t0, sink);
  x.advance(t0, sink);
  // The odd ones have left; the even ones could not be moved together.
  CHECK(sink.ends[1] == std::vector{outcome::completed});
  CHECK(sink.ends[2] == std::vector{outcome::failed});
  CHECK(sink.ends[3] == std::vector{outcome::completed});
  CHECK(sink.ends[4] == std::vector{outcome::failed});
  CHECK(x.is_idle());
  const staged_request waits{.tag = 5};
  x.on_arrival({&waits, 1}, t0);
  CHECK(x.on_cancel(5, t0, sink));
  CHECK(sink.ends[5] == std::vector{outcome::cancelled});
}
TEST_CASE("a row that cannot be moved fails those who are left, and those alone") {
  struct first_leaves : plain_policy {
    verdict judge(const staged_request& r, std::uint32_t) const noexcept {
      return r.tag == 1 ? verdict::leave : r.tag == 2 ? verdict::skip_next : verdict::go_on;
    }
  };
  struct stuck_sink : manual_sink {
    void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {
      throw std::runtime_error{"move"};
    }
  } sink;
  const stage_profile p{points(2, {{.batch = 4, .time = 1ms}}), 4};
  // No row is free to close the gap with; then the second would have to change places with the
  // last.
  pipeline<first_leaves> x{p, {.max_rows = 1}, first_leaves{{4}}};
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  x.on_arrival(four, t0);
  x.advance(t0, sink);
  x.on_complete(0, 0, t0, sink);
  CHECK(x.in_flight() == 0);
  x.advance(t0, sink);
  CHECK(sink.ends[1] == std::vector{outcome::completed});
  for (const std::uint64_t tag : {2U, 3U, 4U})
    CHECK(sink.ends[tag] == std::vector{outcome::failed});
  CHECK(x.is_idle());
}
TEST_CASE("what derives from a policy that runs through is asked all the same") {
  struct odd_leave : diversity {
    using diversity::diversity;
    verdict judge(const staged_request& r, std::uint32_t) const noexcept {
      return r.tag == 1 ? verdict::leave : verdict::go_on;
    }
  };
  const stage_profile p{points(2, {{.batch = 4, .time = 1ms}}), 4};
  const auto first_last = [&](auto policy) {
    pipeline<decltype(policy)> x{p, {.entry = entry_rule::idle}, std::move(policy)};
    through_sink sink;
    const std::vector<staged_request> four(4);
    x.on_arrival(four, t0);
    x.advance(t0, sink);
    return sink.launched.at(0).last;
  };
  CHECK(first_last(diversity{p, {.hand_over = 1ms}}) == 1);
  CHECK(first_last(odd_leave{p, {.hand_over = 1ms}}) == 0);
}

TEST_CASE("a sink that judges is asked once after each stage that it wants to judge by") {
  struct judge_sink : through_sink {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> asked;
    std::vector<std::uint64_t> order;  // Of slots as launched at stage 2.
    std::vector<std::uint32_t> moves;
    static bool judges(std::uint32_t stage) { return stage == 1; }
    verdict judge(const staged_request& r, std::uint32_t stage) {
      asked.emplace_back(r.tag, stage);
      if (r.tag == 4) throw std::runtime_error{"no verdict"};
      return r.tag == 1 ? verdict::leave : r.tag == 2 ? verdict::skip_next : verdict::go_on;
    }
    void launch(const stage_launch& l) {
      through_sink::launch(l);
      if (l.stage != 2) return;
      for (const slot& s : l.slots) order.push_back(s.request.tag);
      CHECK(l.skipping() == 1);
      CHECK(l.slots.back().skips);
    }
    void move(std::uint32_t, std::uint32_t boundary, std::uint32_t from, std::uint32_t to) {
      CHECK(boundary == 2);
      moves.insert(moves.end(), {from, to});
    }
  } sink;
  const stage_profile p{points(4, {{.batch = 4, .time = 1ms}}), 4};
  int asked = 0;
  pipeline<runs> x{p, {.entry = entry_rule::idle}, runs{{4}, 3, &asked}};
  const std::vector<staged_request> four{{.tag = 1}, {.tag = 2}, {.tag = 3}, {.tag = 4}};
  x.on_arrival(four, t0);
  x.advance(t0, sink);
  REQUIRE(sink.launched.size() == 1);
  CHECK(sink.launched[0].last == 1);  // The policy would run to 3.
  x.on_complete(0, 0, t0, sink);
  x.advance(t0, sink);
  using pairs = std::vector<std::pair<std::uint64_t, std::uint32_t>>;
  CHECK(sink.asked == pairs{{1, 1}, {2, 1}, {3, 1}, {4, 1}});
  CHECK(sink.ends[1] == std::vector{outcome::completed});
  CHECK(sink.ends[4] == std::vector{outcome::failed});
  // 2 and 3 move down one; then they change places by way of the spare slot, 4.
  CHECK(sink.moves == std::vector<std::uint32_t>{1, 0, 2, 1, 0, 4, 1, 0, 4, 1});
  CHECK(sink.order == std::vector<std::uint64_t>{3, 2});
  x.on_complete(0, 2, t0, sink);
  x.advance(t0, sink);
  CHECK(sink.launched.back().skipping() == 0);
  x.on_complete(0, 3, t0, sink);
  x.advance(t0, sink);
  CHECK(sink.ends[2] == std::vector{outcome::completed});
  CHECK(sink.ends[3] == std::vector{outcome::completed});
  CHECK(x.is_idle());
}

/// What requests were told after their stages: once each.
struct verdicts {
  std::map<std::pair<std::uint64_t, std::uint32_t>, verdict> given;
  bool twice = false;
  verdict give(test::random_source& random, std::uint64_t tag, std::uint32_t stage) {
    const std::uint32_t n = random.below(8U);
    const verdict v = n == 0 ? verdict::leave : n < 3 ? verdict::skip_next : verdict::go_on;
    if (!given.emplace(std::pair{tag, stage}, v).second) twice = true;
    return v;
  }
  [[nodiscard]] bool skips(std::uint64_t tag, std::uint32_t stage) const {
    const auto v = stage == 0 ? given.end() : given.find({tag, stage - 1});
    return v != given.end() && v->second == verdict::skip_next;
  }
  /// One bit for each stage before `stage` that has run on the request.
  [[nodiscard]] std::uint32_t ran(std::uint64_t tag, std::uint32_t stage) const {
    std::uint32_t bits = 0;
    for (std::uint32_t s = 0; s < stage; ++s) bits |= skips(tag, s) ? 0U : 1U << s;
    return bits;
  }
};

/// Any decision that the interface allows.
struct random_policy : plain_policy {
  test::random_source* random;
  verdicts* told;
  entry_decision entry(const entry_view& v) const noexcept {
    return {.count = random->below(v.eligible + 1), .bucket = random->below(2U)};
  }
  bool stretches_on_arrival(const batch_row&, std::uint32_t) const noexcept {
    return random->one_in(2);
  }
  std::uint32_t stretch(const hand_over_view& v) const noexcept {
    return random->below(v.may_join + 1);
  }
  std::uint32_t split(const hand_over_view& v, std::span<std::uint32_t> sizes) const noexcept {
    return test_support::random_parts(*random, v.row.size, sizes);
  }
  bool foresees_split(std::uint32_t) const noexcept { return random->one_in(4); }
  verdict judge(const staged_request& r, std::uint32_t stage) const noexcept {
    return stage % 2 == 0 ? told->give(*random, r.tag, stage) : verdict::go_on;
  }
  using run_to_of = random_policy;
  std::uint32_t run_to(const batch_row&, std::uint32_t stage) const noexcept {
    return stage + random->below(3U);
  }
};

TEST_CASE("under random decisions every request ends once, in order, from the slot it was put in") {
  std::uint64_t skipped = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t stages = 1 + random.below(4U);
    points all(stages, {{.batch = 5, .bucket = 0, .time = 1ms, .share = 0.5},
                        {.batch = 5, .bucket = 1, .time = 1ms, .share = 0.5}});
    const stage_profile p{all, 5, 2};
    pipeline_options o{.buffer_sets = 1 + random.below(3U),
                       .executors_per_set = random.one_in(2),
                       .entry = random.one_in(2) ? entry_rule::idle : entry_rule::stage_free,
                       .stretch = {.longest_wait = random.one_in(3) ? duration{20} : unbounded},
                       .serial_children = random.one_in(2),
                       .max_rows = 2 + random.below(30U)};
    if (random.one_in(2)) o.window = duration{random.below(8)};
    verdicts told;
    pipeline<random_policy> x{p, o, random_policy{{.batch_max = 5}, &random, &told}};

    // What every buffer holds: the tag, and for which boundary it was computed.
    struct cell {
      std::uint64_t tag = UINT64_MAX;
      std::uint32_t version = UINT32_MAX;
      std::uint32_t ran = 0;  // A bit for each stage that ran on it.
    };
    struct sink_type : may_run_through {
      test::random_source& random;
      verdicts& told;
      std::uint32_t skipped = 0;
      sink_type(test::random_source& r, verdicts& v) : random{r}, told{v} {}
      static bool judges(std::uint32_t stage) { return stage % 2 == 1; }
      verdict judge(const staged_request& r, std::uint32_t stage) {
        return told.give(random, r.tag, stage);
      }
      std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, cell>
          cells;  // set, boundary, slot.
      std::vector<stage_launch> running;
      std::vector<std::vector<std::uint64_t>> tags;
      std::map<std::uint64_t, int> ends;
      void launch(const stage_launch& l) {
        for (const stage_launch& other : running) {  // I1.
          REQUIRE_FALSE(
              (other.set == l.set && other.stage <= l.last + 1 && l.stage <= other.last + 1));
        }
        std::vector<std::uint64_t> t;
        for (std::uint32_t i = 0; i < l.count; ++i) {
          t.push_back(l.slots[i].live ? l.slots[i].request.tag : UINT64_MAX);
          if (l.stage == 0) cells[{l.set, 0, l.first + i}] = {t.back(), 0};
          if (!l.slots[i].live) continue;
          const cell& c = cells[{l.set, l.stage, l.first + i}];
          REQUIRE(c.tag == t.back());  // I3.
          REQUIRE(c.version == l.stage);
          REQUIRE(c.ran == told.ran(t.back(), l.stage));
          REQUIRE(l.slots[i].skips == told.skips(t.back(), l.stage));
          skipped += l.slots[i].skips ? 1U : 0U;
        }
        running.push_back(l);
        tags.push_back(t);
      }
      void end(const staged_request& r, outcome, time_point) { ++ends[r.tag]; }
      void move(std::uint32_t set, std::uint32_t boundary, std::uint32_t from, std::uint32_t to) {
        REQUIRE(std::max(from, to) <= 5);  // The spare slot is the last.
        cells[{set, boundary, to}] = cells[{set, boundary, from}];
      }
    } sink{random, told};
    std::uint64_t accepted = 0;
    time_point now = t0;
    for (int step = 0; step < 300 || !x.is_idle(); ++step) {
      REQUIRE(step < 20000);
      now += duration{1};
      const std::uint32_t choice = random.below(4U);
      if (choice == 0 && step < 300) {
        std::vector<staged_request> group(1 + random.below(4U));
        for (staged_request& r : group)
          r = {.tag = accepted + static_cast<std::uint64_t>(&r - group.data()),
               .arrival = now,
               .bucket = random.below(2U)};
        accepted += x.on_arrival(group, now);
      } else if (choice == 1 && accepted > 0 && random.one_in(3)) {
        x.on_cancel(random.below(accepted), now, sink);
      } else if (!sink.running.empty()) {
        const std::size_t i = random.below(sink.running.size());
        const stage_launch l = sink.running[i];
        const auto tags = sink.tags[i];
        sink.running.erase(sink.running.begin() + static_cast<std::ptrdiff_t>(i));
        sink.tags.erase(sink.tags.begin() + static_cast<std::ptrdiff_t>(i));
        for (std::uint32_t k = 0; k < l.count; ++k) {
          if (tags[k] == UINT64_MAX) continue;
          REQUIRE(sink.cells[{l.set, l.stage, l.first + k}].tag == tags[k]);  // Not overwritten.
          for (std::uint32_t s = l.stage; s <= l.last; ++s) {
            const std::uint32_t ran = sink.cells[{l.set, s, l.first + k}].ran;
            sink.cells[{l.set, s + 1, l.first + k}] = {
                tags[k], s + 1, told.skips(tags[k], s) ? ran : ran | 1U << s};
          }
        }
        x.on_complete(l.lane, l.stage, now, sink, random.one_in(20));
      }
      x.advance(now, sink);
      if (o.buffer_sets == 1) REQUIRE(sink.running.size() <= 1);  // I4.
    }
    CHECK_FALSE(told.twice);
    skipped += sink.skipped;
    CHECK(sink.ends.size() == accepted);  // I8.
    for (const auto& [tag, times] : sink.ends) REQUIRE(times == 1);
    CHECK(x.in_flight() ==
          0);  // I13: is_idle also says that buffers and table are as at the start.
  }
  CHECK(skipped > 1000);
}
}  // namespace
}  // namespace cohort::batching::pipeline_test
