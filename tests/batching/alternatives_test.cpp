// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/alternatives.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace cohort::batching::alternatives_test {
namespace {
using namespace std::chrono_literals;

struct rules {
  input_rule input;
  split_rule split;
  stretch_rule stretch;
  std::uint32_t most_rows;
  duration delay;
  bool operator==(const rules&) const = default;
};
std::vector<rules> tried(const diversity_options& o, std::uint32_t lanes) {
  const stage_profile p{std::vector<std::vector<stage_point>>{{{.batch = 4, .time = 8ms}}}, 4};
  std::vector<rules> out;
  for (const diversity& d : alternatives(diversity{p, o}, p, lanes)) {
    const diversity_options& x = d.options();
    out.push_back({x.input, x.split, x.stretch, x.most_rows, x.delay});
  }
  return out;
}
constexpr auto filled = input_rule::filled;
constexpr auto no_input = input_rule::none;
constexpr auto split = split_rule::planned;
constexpr auto no_split = split_rule::none;
constexpr auto stretch = stretch_rule::planned;
constexpr auto no_stretch = stretch_rule::none;

TEST_CASE(
    "a policy without diversity is tried with two delays, an eighth and a half of one request") {
  CHECK(tried({.split = no_split, .stretch = no_stretch}, 1) ==
        std::vector<rules>{{no_input, no_split, no_stretch, 1, 0ms},
                           {no_input, no_split, no_stretch, 1, 1ms},
                           {no_input, no_split, no_stretch, 1, 4ms},
                           {no_input, no_split, no_stretch, 0, 0ms}});
}
TEST_CASE("on one lane each kind is tried, operator and load diversity with that of inputs") {
  CHECK(tried({.input = filled}, 1) == std::vector<rules>{{no_input, no_split, no_stretch, 1, 0ms},
                                                          {no_input, no_split, no_stretch, 1, 1ms},
                                                          {no_input, no_split, no_stretch, 1, 4ms},
                                                          {filled, no_split, no_stretch, 0, 0ms},
                                                          {filled, split, no_stretch, 0, 0ms},
                                                          {filled, no_split, stretch, 0, 0ms},
                                                          {filled, split, stretch, 0, 0ms}});
}
TEST_CASE("on several lanes rows one at a time, and side by side as they come, are tried too") {
  CHECK(tried({.input = filled}, 3) == std::vector<rules>{{no_input, no_split, no_stretch, 1, 0ms},
                                                          {no_input, no_split, no_stretch, 1, 1ms},
                                                          {no_input, no_split, no_stretch, 1, 4ms},
                                                          {filled, no_split, no_stretch, 1, 0ms},
                                                          {no_input, no_split, no_stretch, 0, 0ms},
                                                          {filled, no_split, no_stretch, 0, 0ms},
                                                          {filled, split, no_stretch, 0, 0ms},
                                                          {filled, no_split, stretch, 0, 0ms},
                                                          {filled, split, stretch, 0, 0ms}});
  CHECK(tried({.stretch = no_stretch}, 2) ==
        std::vector<rules>{{no_input, no_split, no_stretch, 1, 0ms},
                           {no_input, no_split, no_stretch, 1, 1ms},
                           {no_input, no_split, no_stretch, 1, 4ms},
                           {no_input, no_split, no_stretch, 0, 0ms},
                           {no_input, split, no_stretch, 0, 0ms}});
}

}  // namespace
}  // namespace cohort::batching::alternatives_test
