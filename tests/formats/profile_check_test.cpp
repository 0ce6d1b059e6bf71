// SPDX-License-Identifier: Apache-2.0
#include <formats/profile_check.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <support/random_source.hpp>
#include <vector>

namespace cohort::formats {
namespace {

std::vector<double> risen(std::vector<double> ms) {
  std::vector<measured_size> sizes;
  for (const double x : ms) sizes.push_back({1, x});
  make_rise(sizes);
  std::transform(sizes.begin(), sizes.end(), ms.begin(), [](const auto& s) { return s.ms; });
  return ms;
}
/// The complaint about a table, without the place.
std::string complaint(std::vector<measured_size> sizes) {
  try {
    latency_check{"f"}("t", sizes, [](std::size_t i) { return "row " + std::to_string(i); });
  } catch (const input_error& e) {
    return e.what();
  }
  return "none";
}

TEST_CASE("what falls takes the mean of all that it falls below") {
  CHECK(risen({}).empty());
  CHECK(risen({3}) == std::vector<double>{3});
  CHECK(risen({1, 2, 2, 5}) == std::vector<double>{1, 2, 2, 5});
  CHECK(risen({1, 3, 2, 5}) == std::vector<double>{1, 2.5, 2.5, 5});
  CHECK(risen({9, 3, 3}) == std::vector<double>{5, 5, 5});
  // 4 and 2 make 3, 3 and 3 do not fall, and 0 draws all down: 9 / 4.
  CHECK(risen({4, 2, 3, 0}) == std::vector<double>{2.25, 2.25, 2.25, 2.25});
}
TEST_CASE("random tables rise afterwards, keep their sum, and keep what rose already") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    std::vector<double> ms(1 + random.below(20U));
    double sum = 0;
    for (double& x : ms) sum += x = 1 + random.below(1000U);
    const std::vector<double> after = risen(ms);
    CHECK(std::ranges::is_sorted(after));
    double same = 0;
    for (const double x : after) same += x;
    CHECK(same == doctest::Approx(sum));
    CHECK(risen(after) == after);
    std::ranges::sort(ms);
    CHECK(risen(ms) == ms);
  }
}
TEST_CASE("neighbours that are too far apart are refused with the range that is allowed") {
  CHECK(complaint({{1, 5}, {2, 6}, {4, 7}}) == "none");
  CHECK(complaint({{1, 5}, {2, 5000}}) ==
        "row 1: 5000 is not allowed: expected 0.5 to 100, since a batch of 1 takes 5: a tenth of "
        "that, up to ten times as long a request");
  CHECK(complaint({{1, 5000}, {2, 6}}).starts_with("row 1: 6 is not allowed: expected 500 to"));
  // In proportion, and a cold first batch.
  CHECK(complaint({{1, 5}, {1024, 5120}}) == "none");
  CHECK(complaint({{1, 50}, {2, 6}}) == "none");
}
TEST_CASE("times below what timers tell apart may jump, but not to those above") {
  CHECK(complaint({{1, 1e-6}, {2, 0.003}, {4, 0.00001}}) == "none");
  CHECK(complaint({{1, 0.001}, {2, 1}}).starts_with("row 1: 1 is not allowed: expected 0.0001 to"));
}
TEST_CASE("of several tables the worst is told, in one line") {
  latency_check check{"latency.csv"};
  CHECK_FALSE(check.warning());
  const auto place = [](std::size_t) { return std::string{}; };
  std::vector<measured_size> rising{{1, 1}, {2, 2}};
  check("a", rising, place);
  CHECK_FALSE(check.warning());
  std::vector<measured_size> small{{1, 100}, {2, 99}};
  std::vector<measured_size> large{{1, 100}, {2, 150}, {4, 120}};
  check("b", small, place);
  check("c", large, place);
  CHECK(small[0].ms == 99.5);
  CHECK(large[2].ms == 135);
  CHECK(check.warning() ==
        "latency.csv: latencies of c fall from batch 2 to 4 by 20 %, the most of 2 tables that "
        "fall: such sizes take their mean (isotonic regression)");
}
}  // namespace
}  // namespace cohort::formats
