// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/diversity.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/batch_table.hpp>

#include <array>
#include <vector>

namespace cohort::batching::diversity_test {
namespace {
using namespace std::chrono_literals;
using list = std::vector<std::uint32_t>;
using stages = std::vector<std::vector<stage_point>>;

/// A stage that batches for nothing, then one that gains nothing from batching: 2 ms a request.
stage_profile flat_then_steep() {
  return {stages{{{.batch = 4, .time = 3ms}},
                 {{.batch = 1, .time = 2ms}, {.batch = 2, .time = 4ms}, {.batch = 4, .time = 8ms}}},
          4};
}
/// The other way round.
stage_profile steep_then_flat() {
  return {stages{{{.batch = 1, .time = 2ms}, {.batch = 2, .time = 4ms}, {.batch = 4, .time = 8ms}},
                 {{.batch = 4, .time = 3ms}}},
          4};
}
/// Two buckets; up to 2 short requests run in the time of one, a long one takes twice as long.
stage_profile two_lengths() {
  return {stages{{{.batch = 2, .bucket = 0, .time = 5ms, .share = 0.5},
                  {.batch = 4, .bucket = 0, .time = 10ms},
                  {.batch = 2, .bucket = 1, .time = 10ms, .share = 0.5},
                  {.batch = 4, .bucket = 1, .time = 20ms}}},
          4, 2};
}

waiting_list waiting(const list& buckets) {
  waiting_list w;
  for (std::uint32_t i = 0; i < buckets.size(); ++i) w.push({.tag = i, .bucket = buckets[i]});
  return w;
}
constexpr std::array<std::uint32_t, 2> half_each{8, 8};
struct entered {
  std::uint32_t count;
  std::uint32_t bucket;
  fill_order fill;
  bool operator==(const entered&) const = default;
};
entered entry(const diversity& d, const list& buckets, std::uint32_t in_flight = 0,
              double share = 0) {
  const waiting_list w = waiting(buckets);
  const entry_decision e = d.entry({.now = {},
                                    .waiting = w,
                                    .eligible = w.size(),
                                    .rows = 0,
                                    .requests_in_flight = in_flight,
                                    .running_share = share,
                                    .window = false,
                                    .mix = half_each});
  return {e.count, e.bucket, e.fill};
}
/// The parts in which a row of n goes on after stage 0, with w waiting.
list parts(const diversity& d, std::uint32_t n, std::uint32_t w = 0) {
  batch_table t{{.stages = 2, .batch_max = 4, .max_rows = 1}};
  batch_row& r = t.add();
  r.size = r.live = n;
  const waiting_list behind = waiting(list(w, 0));
  std::array<std::uint32_t, 4> sizes{};
  const std::uint32_t k =
      d.split({.now = {}, .row = r, .stage = 0, .waiting = behind, .may_join = 0}, sizes);
  return {sizes.begin(), sizes.begin() + k};
}

TEST_CASE("without input diversity all that wait enter, padded to the longest") {
  const stage_profile p = two_lengths();
  const diversity d{p, {.split = split_rule::none, .stretch = stretch_rule::none}};
  CHECK(entry(d, {0, 1, 0}) == entered{3, 1, fill_order::oldest});
  CHECK(entry(d, {0, 0, 0, 0, 1, 1}) == entered{4, 0, fill_order::oldest});
}
TEST_CASE("clusters: a row of the oldest's bucket, while there is room in flight") {
  const stage_profile p = two_lengths();
  const diversity d{p, {.input = input_rule::clusters}};
  CHECK(entry(d, {1, 0, 1}) == entered{4, 1, fill_order::same_bucket});
  CHECK(entry(d, {1, 0, 1}, 3) == entered{1, 1, fill_order::same_bucket});
  CHECK(entry(d, {1, 0, 1}, 4).count == 0);
  CHECK(entry(d, {1, 0, 1}, 1, 1.0).count == 0);
}
TEST_CASE("filled: a nanosecond decides nothing") {
  const stage_profile flat = two_lengths();
  const stage_profile measured{stages{{{.batch = 1, .bucket = 0, .time = 5ms, .share = 0.5},
                                       {.batch = 2, .bucket = 0, .time = 5ms + 1ns, .share = 0.5},
                                       {.batch = 4, .bucket = 0, .time = 10ms},
                                       {.batch = 1, .bucket = 1, .time = 10ms, .share = 0.5},
                                       {.batch = 2, .bucket = 1, .time = 10ms + 1ns, .share = 0.5},
                                       {.batch = 4, .bucket = 1, .time = 20ms}}},
                               4, 2};
  for (const stage_profile* p : {&flat, &measured}) {
    const diversity d{*p, {.input = input_rule::filled}};
    // Two short ones run in the time of one; three would take twice as long.
    CHECK(entry(d, {0, 0}) == entered{2, 0, fill_order::longest_first});
    CHECK(entry(d, {0, 0, 0}) == entered{2, 0, fill_order::longest_first});
    // A short one beside a long one costs the long one nothing.
    CHECK(entry(d, {1, 0}) == entered{2, 1, fill_order::longest_first});
  }
  const diversity d{flat, {.input = input_rule::filled}};
  CHECK(entry(d, {0, 1}) == entered{1, 0, fill_order::longest_first});
  CHECK(entry(d, {0, 0}, 4).count == 0);       // Four are in flight.
  CHECK(entry(d, {0, 0}, 0, 1.0).count == 0);  // The device has no share left.
}
TEST_CASE("one row at a time, and one that waits for others") {
  const stage_profile p = steep_then_flat();
  const diversity all{p};
  const diversity d = all.with(
      {.split = split_rule::none, .stretch = stretch_rule::none, .most_rows = 1, .delay = 2ms});
  const waiting_list one = waiting({0});
  const auto at = [&](duration now, std::uint32_t rows) {
    return d.entry({.now = time_point{} + now,
                    .waiting = one,
                    .eligible = 1,
                    .rows = rows,
                    .requests_in_flight = rows,
                    .running_share = 0,
                    .window = false});
  };
  CHECK(at(1ms, 0).count == 0);
  CHECK(at(1ms, 0).again == time_point{} + 2ms);
  CHECK(at(2ms, 0).count == 1);
  CHECK(at(3ms, 1).count == 0);
  CHECK(at(3ms, 1).again == never);                                    // When the row ends.
  CHECK(entry(d, {0, 0, 0, 0}) == entered{4, 0, fill_order::oldest});  // The largest batch.
}
TEST_CASE("halving cuts again and again while two halves are not slower") {
  const stage_profile gains_nothing = flat_then_steep();
  const diversity d{gains_nothing, {.split = split_rule::halving, .stretch = stretch_rule::none}};
  CHECK(parts(d, 4) == list{1, 1, 1, 1});
  CHECK(parts(d, 2) == list{1, 1});
  CHECK(parts(d, 1) == list{1});
  CHECK(d.foresees_split(1));
  const stage_profile gains = steep_then_flat();
  const diversity whole{gains, {.split = split_rule::halving, .stretch = stretch_rule::none}};
  CHECK(parts(whole, 4) == list{4});
  CHECK_FALSE(whole.foresees_split(4));
}
TEST_CASE("halving judges an odd row by its larger half, which goes first") {
  // Of 2 ms each: three take 6, twice two take 8, twice one 4.
  const stage_profile linear{stages{{{.batch = 4, .time = 3ms}},
                                    {{.batch = 1, .time = 2ms},
                                     {.batch = 2, .time = 4ms},
                                     {.batch = 3, .time = 6ms},
                                     {.batch = 4, .time = 8ms}}},
                             4};
  constexpr diversity_options printed{.split = split_rule::halving, .stretch = stretch_rule::none};
  CHECK(parts(diversity{linear, printed}, 3) == list{3});
  // Pairs in 2 ms, three in 4: two and one.
  const stage_profile pairs{
      stages{{{.batch = 4, .time = 3ms}}, {{.batch = 2, .time = 2ms}, {.batch = 4, .time = 4ms}}},
      4};
  CHECK(parts(diversity{pairs, printed}, 3) == list{2, 1});
  CHECK(parts(diversity{pairs, printed}, 4) == list{2, 2});
}
TEST_CASE("halving judges a measured cost per launch by its tolerance") {
  // Halves of 2.02 ms against 4 ms: 1 % slower.
  const stage_profile p{stages{{{.batch = 2, .time = 1ms}},
                               {{.batch = 1, .time = 2020us}, {.batch = 2, .time = 4ms}}},
                        2};
  const auto cut = [&](double tolerance) {
    const diversity d{p, {.split = split_rule::halving, .split_tolerance = tolerance}};
    return d.foresees_split(2);
  };
  CHECK_FALSE(cut(0));
  CHECK(cut(0.01));
}
TEST_CASE("planned splits minimise the sum of finish times") {
  const stage_profile p = flat_then_steep();
  const diversity d{p, {.stretch = stretch_rule::none}};
  // Whole: 4 x 8. Ones: 2 x (4 + 3 + 2 + 1) = 20. Those who wait see the same 8 ms either way.
  CHECK(parts(d, 4) == list{1, 1, 1, 1});
  CHECK(parts(d, 4, 3) == list{1, 1, 1, 1});
  CHECK_FALSE(d.foresees_split(4));  // A plan is not bound before it is made.
  const stage_profile flat = steep_then_flat();
  CHECK(parts(diversity{flat, {.stretch = stretch_rule::none}}, 4) == list{4});
}
TEST_CASE("who may join is all, none, or what the plan says") {
  const stage_profile p = steep_then_flat();
  batch_table t{{.stages = 2, .batch_max = 4, .max_rows = 1}};
  batch_row& r = t.add();
  r.size = r.live = r.issued[0] = r.completed[0] = 1;
  const auto joins = [&](stretch_rule rule, std::uint32_t w) {
    const diversity d{p, {.split = split_rule::none, .stretch = rule}};
    const waiting_list behind = waiting(list(w, 0));
    return d.stretch({.now = {}, .row = r, .stage = 0, .waiting = behind, .may_join = w});
  };
  CHECK(joins(stretch_rule::none, 2) == 0);
  CHECK(joins(stretch_rule::always, 2) == 2);
  // One joins: its 2 ms are waited for by two, then both run 3 ms: 2 x 5 = 10. It does not: both
  // wait 3 ms, then one 2 + 3 ms: 2 x 3 + 5 = 11.
  CHECK(joins(stretch_rule::planned, 1) == 1);
  CHECK(diversity{p, {.stretch = stretch_rule::always}}.stretches_on_arrival(r, 1));
  CHECK_FALSE(diversity{p}.stretches_on_arrival(r, 1));
}
TEST_CASE("who would join a row of which a part has gone ahead is weighed by what both still run") {
  // One is in stage 1, the other has left stage 0 behind it; one waits. Up to two take 1, 1 and 3
  // ms, more take 10 in stage 1.
  const stage_profile p{stages{{{.batch = 4, .time = 1ms}},
                               {{.batch = 2, .time = 1ms}, {.batch = 4, .time = 10ms}},
                               {{.batch = 4, .time = 3ms}}},
                        4};
  batch_table t{{.stages = 3, .batch_max = 4, .max_rows = 1}};
  batch_row& r = t.add();
  r.size = r.live = r.issued[0] = r.completed[0] = 2;
  r.issued[1] = 1;
  const diversity d{p, {.split = split_rule::none}};
  const waiting_list one = waiting({0});
  // It joins: three wait for its 1 ms and the 1 ms of it and the late one, then all run 3 ms: 15.
  // It does not: three wait 1 ms, two run 3 ms while it waits, then it takes 5: 3 + 9 + 5 = 17.
  CHECK(d.stretch({.now = {}, .row = r, .stage = 0, .waiting = one, .may_join = 1}) == 1);
  // If it stood whole, three would run stage 1 in 10 ms.
  r.issued[1] = 0;
  CHECK(d.stretch({.now = {}, .row = r, .stage = 0, .waiting = one, .may_join = 1}) == 0);
}
TEST_CASE("a window's requests are one row, even if two would end earlier") {
  const stage_profile p{stages{{{.batch = 1, .time = 2ms}, {.batch = 2, .time = 4ms}}}, 2};
  const diversity d{p};
  const waiting_list two = waiting({0, 0});
  const auto count = [&](bool window) {
    return d
        .entry({.now = {},
                .waiting = two,
                .eligible = 2,
                .rows = 0,
                .requests_in_flight = 0,
                .running_share = 0,
                .window = window})
        .count;
  };
  CHECK(count(false) == 1);  // 2 + 4 against 2 x 4.
  CHECK(count(true) == 2);
}
TEST_CASE(
    "who is about to come is counted until the row has run its later stages, not all of them") {
  // Two that stand before stage 1, one waits. Ones take (3 + 2) 2 = 10, both at once 3 x 3.5
  // = 10.5; with one more behind 14 and 14, with two more 18 and 17.5.
  const stage_profile p{stages{{{.batch = 2, .time = 20ms}},
                               {{.batch = 1, .time = 2ms}, {.batch = 2, .time = 3500us}}},
                        2};
  const diversity d{p, {.stretch = stretch_rule::none}};
  batch_table t{{.stages = 2, .batch_max = 2, .max_rows = 1}};
  batch_row& r = t.add();
  r.size = r.live = 2;
  const waiting_list one = waiting({0});
  std::array<std::uint32_t, 2> sizes{};
  // At 0.05 a millisecond there are 1.1 as a rule. Until the row has ended there will be 1.175:
  // time is worth little. By the 23.5 ms of all stages there would be 2.175, and three more to
  // count.
  CHECK(queue_value{std::array{0.0, 22.0, 23.5}, 0.05}.usual() ==
        doctest::Approx(1.108).epsilon(1e-3));
  CHECK(d.split({.now = {}, .row = r, .stage = 0, .waiting = one, .may_join = 0, .rate = 0.05},
                sizes) == 2);
}
TEST_CASE("under load rows of long requests are weighed by the times of long ones") {
  // As below for the longer bucket; the short ones take next to nothing.
  const stage_profile p{stages{{{.batch = 2, .bucket = 0, .time = 1us},
                                {.batch = 1, .bucket = 1, .time = 2ms},
                                {.batch = 2, .bucket = 1, .time = 3500us}}},
                        2, 2};
  const diversity d{p};
  const waiting_list two = waiting({1, 1});
  CHECK(d.entry({.now = {},
                 .waiting = two,
                 .eligible = 2,
                 .rows = 0,
                 .requests_in_flight = 0,
                 .running_share = 0,
                 .window = false,
                 .rate = 0.5})
            .count == 2);
}
TEST_CASE("under load rows are made and kept larger") {
  // As in planner_test: two that wait enter one by one, unless more will come soon.
  const stage_profile p{stages{{{.batch = 1, .time = 2ms}, {.batch = 2, .time = 3500us}}}, 2};
  const diversity d{p};
  const auto count = [&](double rate) {
    const waiting_list two = waiting({0, 0});
    const entry_view view{.now = {},
                          .waiting = two,
                          .eligible = 2,
                          .rows = 0,
                          .requests_in_flight = 0,
                          .running_share = 0,
                          .window = false,
                          .rate = rate};
    return d.entry(view).count;
  };
  // Alone: 2 x 2 + 2 in two rows, 2 x 3.5 in one. The larger row wins once two more are delayed: a
  // millisecond delays 3 requests at a load of 0.175, and a dozen at 0.875 (`queue_value`).
  CHECK(count(0) == 1);
  CHECK(count(0.1) == 1);
  CHECK(count(0.5) == 2);
}
TEST_CASE("a row runs to the first hand-over at which it may change") {
  const auto runs_to = [](const stage_profile& p, const diversity_options& o, std::uint32_t n,
                          bool may_grow = true) {
    batch_table t{{.stages = p.stages(), .batch_max = 4, .max_rows = 1}};
    batch_row& r = t.add();
    r.size = r.live = n;
    r.no_stretch = !may_grow;
    return diversity{p, o}.run_to(r, 0);
  };
  const stage_profile late = steep_then_flat();
  const stage_profile early = flat_then_steep();
  constexpr diversity_options no_split{.split = split_rule::none};
  constexpr diversity_options no_stretch{.stretch = stretch_rule::none};
  // One may join a row of one, as above; none a full row, or one that may not grow.
  CHECK(runs_to(late, no_split, 1) == 0);
  CHECK(runs_to(late, no_split, 4) == 1);
  CHECK(runs_to(late, no_split, 1, false) == 1);
  CHECK(runs_to(late, no_stretch, 4) == 1);
  // A row of several is split, one request is not.
  CHECK(runs_to(early, no_stretch, 4) == 0);
  CHECK(runs_to(early, no_stretch, 1) == 1);
  constexpr diversity_options printed{.split = split_rule::halving, .stretch = stretch_rule::none};
  CHECK(runs_to(early, printed, 4) == 0);
  CHECK(runs_to(late, printed, 4) == 1);
  CHECK(runs_to(late, {.stretch = stretch_rule::always}, 4) == 0);
  // Its 2 ms are worth a hand-over of up to 0.1 ms.
  CHECK(runs_to(late, {.split = split_rule::none, .hand_over = 100us}, 1) == 0);
  CHECK(runs_to(late, {.split = split_rule::none, .hand_over = 101us}, 1) == 1);
}
TEST_CASE("each bucket and each stage has hand-overs of its own at which rows change") {
  // Short requests gain nothing from company in stage 1, long ones do.
  const stage_profile p{
      stages{{{.batch = 4, .bucket = 0, .time = 3ms}, {.batch = 4, .bucket = 1, .time = 3ms}},
             {{.batch = 1, .bucket = 0, .time = 2ms},
              {.batch = 2, .bucket = 0, .time = 4ms},
              {.batch = 4, .bucket = 0, .time = 8ms},
              {.batch = 4, .bucket = 1, .time = 2ms}}},
      4, 2};
  const diversity d{p, {.stretch = stretch_rule::none}};
  batch_table t{{.stages = 2, .batch_max = 4, .max_rows = 1}};
  batch_row& r = t.add();
  r.size = r.live = 4;
  CHECK(d.run_to(r, 0) == 0);
  r.bucket = 1;
  CHECK(d.run_to(r, 0) == 1);
  r.bucket = 0;
  CHECK(d.run_to(r, 0) == 0);
}
TEST_CASE("a hand-over is set against the time since the last one") {
  // Of 60 us, worth it after 1.2 ms: not after one stage of 1 ms, but after two.
  const stage_profile p{stages(3, {{.batch = 2, .time = 1ms}}), 2};
  const diversity d{
      p, {.split = split_rule::none, .stretch = stretch_rule::always, .hand_over = 60us}};
  batch_table t{{.stages = 3, .batch_max = 2, .max_rows = 1}};
  batch_row& r = t.add();
  r.size = r.live = 1;
  CHECK(d.run_to(r, 0) == 1);
}
TEST_CASE("a tolerance outside its range is refused") {
  const stage_profile p = steep_then_flat();
  CHECK_THROWS_AS((diversity{p, {.split_tolerance = 1}}), config_error);
  CHECK_THROWS_AS((diversity{p, {.split_tolerance = -0.1}}), config_error);
  CHECK_THROWS_AS((diversity{p, {.hand_over = -1ns}}), config_error);
  CHECK_THROWS_AS((diversity{p, {.delay = -1ns}}), config_error);
}

}  // namespace
}  // namespace cohort::batching::diversity_test
