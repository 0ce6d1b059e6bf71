// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/measure.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/emulated.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <support/complaint.hpp>
#include <vector>

#include "measured_fixture.hpp"

namespace cohort::engine::measure_test {
namespace {
using namespace std::chrono_literals;

constexpr std::array<std::uint32_t, 3> three{10, 20, 30};
std::span<const std::byte> rows(std::span<const std::uint32_t> of) { return std::as_bytes(of); }

TEST_CASE("batches of 1, 2, 4, ... and the largest take what the model takes, by stage") {
  runtime::emulated_executor e;
  told_model m{&e};
  const auto all = measure(e, m, rows(three), {.max_batch = 6, .repeats = 2});
  REQUIRE(all.size() == 4);
  const std::array<std::uint32_t, 4> batches{1, 2, 4, 6};
  const std::array<duration, 4> first{2ms, 3ms, 5ms, 7ms};
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].size == 0);
    CHECK(all[i].batch == batches[i]);
    CHECK(all[i].median == first[i] + 2ms);
    CHECK(all[i].least == first[i] + 2ms);
    CHECK(all[i].stages == std::vector<duration>{first[i], 2ms});
  }
}
TEST_CASE("the median and the least are of the timed runs, not of the one that warms") {
  runtime::emulated_executor e;
  told_model m{&e, 2, {100ms, 5ms, 1ms, 3ms, 40ms}};
  const auto all = measure(e, m, rows(three), {.max_batch = 2, .repeats = 4});
  REQUIRE(all.size() == 2);
  // Of 5, 1, 3 and 40 ms more: the upper median is 5, the least 1.
  CHECK(all[0].median == 4ms + 5ms);
  CHECK(all[0].least == 4ms + 1ms);
  CHECK(all[0].stages == std::vector<duration>{2ms + 5ms, 2ms});
  CHECK(all[1].median == 5ms + 5ms);
  CHECK(all[1].least == 5ms + 1ms);
}
TEST_CASE("sizes take turns, each with inputs of its own") {
  runtime::emulated_executor e;
  told_model m{&e};
  const std::array<std::uint32_t, 1> one{7};
  const std::array<sized_inputs, 2> inputs{{{4, rows(one)}, {8, rows(three)}}};
  const auto all = measure(e, m, inputs, {.max_batch = 4, .repeats = 1});
  using run = told_model::run;
  // Three rows serve a batch of four: the fourth is the first again.
  const std::vector<run> turn{{4, 1, 7, 7},   {4, 2, 7, 7},   {4, 4, 7, 7},
                              {8, 1, 10, 10}, {8, 2, 10, 20}, {8, 4, 10, 10}};
  std::vector<run> twice = turn;
  twice.insert(twice.end(), turn.begin(), turn.end());
  CHECK((m.runs == twice));
  REQUIRE(all.size() == 6);
  CHECK(all[2].size == 4);
  CHECK(all[2].median == 7ms);
  CHECK(all[3].size == 8);
  CHECK(all[3].median == 14ms);

  CHECK(latency_of(all, 8)(1) == 14ms);
  CHECK(latency_of(all, 8)(4) == 17ms);
  const auto stages = stage_times(all, 4);
  REQUIRE(stages.size() == 2);
  REQUIRE(stages[0].size() == 3);
  CHECK(stages[0][2].batch == 4);
  CHECK(stages[0][2].time == 5ms);
  CHECK(stages[1][0].time == 2ms);
  CHECK_THROWS_AS((void)latency_of(all), config_error);
  CHECK_THROWS_AS((void)stage_times(all, 16), config_error);
}
TEST_CASE("work that takes no time is told to schedulers as a nanosecond") {
  const std::array<measured_batch, 1> all{{{0, 1, 0ns, 0ns, {0ns}}}};
  CHECK(latency_of(all)(1) == 1ns);
  CHECK(stage_times(all)[0][0].time == 1ns);
}
TEST_CASE("nothing is left of a measurement, and what cannot be measured is refused") {
  runtime::emulated_executor e{{.pool_bytes = 20 * 4}};
  told_model m{&e};
  // A row has 4, 8 and 8 bytes: four of them fill the pool.
  for (int i = 0; i < 3; ++i) (void)measure(e, m, rows(three), {.max_batch = 4, .repeats = 1});
  const auto refused = [&](std::span<const std::byte> r, std::uint32_t max_batch, int repeats) {
    CHECK_THROWS_AS((void)measure(e, m, r, {.max_batch = max_batch, .repeats = repeats}),
                    config_error);
  };
  refused(rows(three), 0, 1);
  refused(rows(three), 4, 0);
  refused({}, 4, 1);
  refused(rows(three).first(6), 4, 1);
  CHECK_THROWS_AS((void)measure(e, m, rows(three), {.max_batch = 5, .repeats = 1}), resource_error);
  CHECK_THROWS_AS((void)measure(e, m, std::span<const sized_inputs>{}), config_error);
  const std::array<sized_inputs, 2> twice{{{4, rows(three)}, {4, rows(three)}}};
  CHECK(test::gist_of<config_error>([&] {
          (void)measure(e, m, twice, {.max_batch = 4, .repeats = 1});
        }) == "measure ... size ... twice");
}
TEST_CASE("measured batches end with the largest, and the median is the upper one") {
  CHECK(measured_batches(1) == std::vector<std::uint32_t>{1});
  CHECK(measured_batches(8) == std::vector<std::uint32_t>{1, 2, 4, 8});
  CHECK(measured_batches(11) == std::vector<std::uint32_t>{1, 2, 4, 8, 11});
  CHECK(measured_batches(0xFFFFFFFFU).size() == 33);
  CHECK(median(std::vector{5}) == 5);
  CHECK(median(std::vector{9, 1, 5}) == 5);
  CHECK(median(std::vector{9, 1, 5, 7}) == 7);
}
}  // namespace
}  // namespace cohort::engine::measure_test
