// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/stage_profile.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::batching::stage_profile_test {
namespace {
using namespace std::chrono_literals;
using stages = std::vector<std::vector<stage_point>>;

TEST_CASE("a batch takes the time and share of the next larger size measured") {
  const stage_profile p{stages{{{.batch = 4, .time = 7ms, .share = 0.5},
                                {.batch = 1, .time = 3ms, .share = 0.25},
                                {.batch = 16, .time = 20ms}}},
                        6};
  CHECK(p.time(0, 1) == 3ms);
  CHECK(p.time(0, 2) == 7ms);
  CHECK(p.time(0, 4) == 7ms);
  CHECK(p.time(0, 5) == 20ms);
  CHECK(p.time(0, 6) == 20ms);
  CHECK(p.share(0, 1) == 0.25);
  CHECK(p.share(0, 3) == 0.5);
  CHECK(p.share(0, 6) == 1);
  const std::vector<std::uint32_t> sizes{1, 4, 6};
  CHECK(std::vector(p.sizes().begin(), p.sizes().end()) == sizes);
}
TEST_CASE("on lines time and share lie between those of the measured sizes around") {
  const stage_profile p{stages{{{.batch = 2, .time = 4ms, .share = 0.5},
                                {.batch = 6, .time = 8ms, .share = 0.75},
                                {.batch = 16, .time = 18ms}}},
                        8, 1, between_sizes::line};
  CHECK(p.time(0, 1) == 4ms);
  CHECK(p.time(0, 2) == 4ms);
  CHECK(p.time(0, 3) == 5ms);
  CHECK(p.time(0, 5) == 7ms);
  CHECK(p.time(0, 6) == 8ms);
  CHECK(p.time(0, 8) == 10ms);
  CHECK(p.share(0, 4) == doctest::Approx(0.625));
  const std::vector<std::uint32_t> sizes{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(std::vector(p.sizes().begin(), p.sizes().end()) == sizes);
}
TEST_CASE("of many sizes on lines some are worth considering, the measured ones among them") {
  const stage_profile p{stages{{{.batch = 7, .time = 4ms}, {.batch = 1000, .time = 8ms}}}, 1000, 1,
                        between_sizes::line};
  const std::vector sizes(p.sizes().begin(), p.sizes().end());
  CHECK(sizes.size() <= stage_profile::most_sizes + 2);
  CHECK(std::ranges::find(sizes, 7U) != sizes.end());
  CHECK(sizes.back() == 1000);
}
TEST_CASE("times of several stages and buckets") {
  const stage_profile p{
      stages{{{.batch = 2, .bucket = 0, .time = 1ms}, {.batch = 2, .bucket = 1, .time = 2ms}},
             {{.batch = 2, .bucket = 0, .time = 10ms}, {.batch = 2, .bucket = 1, .time = 30ms}}},
      2, 2};
  CHECK(p.total(1) == 11ms);
  CHECK(p.total(2, 1) == 32ms);
  CHECK(p.time_between(1, 2, 1, 1) == 30ms);
  CHECK(p.time_between(1, 1, 1) == 0ms);
}
TEST_CASE("a profile with holes or values out of range is refused") {
  const auto refusal = [](const stages& s, std::uint32_t batch_max, std::uint32_t buckets = 1) {
    return test::gist_of<config_error>([&] { (void)stage_profile{s, batch_max, buckets}; });
  };
  const std::vector<stage_point> one{{.batch = 1, .time = 1ms}};
  CHECK(refusal({}, 1) == "stage_profile: stages ... at least 1");
  CHECK(refusal({one}, 0) == "stage_profile: batch_max ... at least 1");
  CHECK(refusal({one}, 1, 0) == "stage_profile: buckets ... at least 1");
  const std::string hole = "stage_profile: every stage ... bucket ... batch_max";
  CHECK(refusal({one}, 2) == hole);
  CHECK(refusal({one, {}}, 1) == hole);
  CHECK(refusal({one}, 1, 2) == hole);
  CHECK(refusal({{{.batch = 0}}}, 1) == "stage_profile: batch ... at least 1");
  CHECK(refusal({{{.batch = 1, .bucket = 1}}}, 1) ==
        "stage_profile: bucket ... below ... number ... buckets");
  CHECK(refusal({{{.batch = 1, .time = -1ns}}}, 1) == "stage_profile: time ... at least 0");
  CHECK(refusal({{{.batch = 1, .share = 0}}}, 1) == "stage_profile: share ... (0, 1]");
  CHECK(refusal({{{.batch = 1, .share = 1.01}}}, 1) == "stage_profile: share ... (0, 1]");
  CHECK(refusal({{{.batch = 2, .time = 1ms}, {.batch = 2, .time = 2ms}}}, 2) ==
        "stage_profile ... batch size ... twice");
}

}  // namespace
}  // namespace cohort::batching::stage_profile_test
