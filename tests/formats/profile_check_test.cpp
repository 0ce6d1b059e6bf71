// SPDX-License-Identifier: Apache-2.0
#include <formats/profile_check.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <support/complaint.hpp>
#include <support/random_source.hpp>
#include <vector>

namespace cohort::formats::profile_check_test {
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
    return test::gist(e.what());
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
  CHECK(complaint({{1, 5}, {2, 5000}}) == "row 1: bad value");
  CHECK(complaint({{1, 5000}, {2, 6}}).starts_with("row 1: bad value"));
  // In proportion, and a cold first batch.
  CHECK(complaint({{1, 5}, {1024, 5120}}) == "none");
  CHECK(complaint({{1, 50}, {2, 6}}) == "none");
}
TEST_CASE("times below what timers tell apart may jump, but not to those above") {
  CHECK(complaint({{1, 1e-6}, {2, 0.003}, {4, 0.00001}}) == "none");
  CHECK(complaint({{1, 0.001}, {2, 1}}).starts_with("row 1: bad value"));
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
  CHECK(test::gist{check.warning().value()} ==
        "latency.csv: ... c ... batch 2 to 4 ... 20 % ... 2 tables ... mean");
}
using table = std::vector<measured_size>;

/// The complaint about two tables, without the place.
std::string complaint(across_check::sizes of, std::uint32_t size, const table& small,
                      std::uint32_t larger, const table& large) {
  try {
    across_check{"f", of}("t", {size, small}, {larger, large},
                          [](std::size_t i) { return "row " + std::to_string(i); });
  } catch (const input_error& e) {
    return test::gist(e.what());
  }
  return "none";
}
std::string of_partitions(const table& small, const table& large) {
  return complaint(across_check::sizes::partitions, 20, small, 80, large);
}
std::string of_requests(const table& small, const table& large) {
  return complaint(across_check::sizes::requests, 16, small, 32, large);
}

TEST_CASE("partitions that are too far apart are refused with the range that is allowed") {
  // A quarter of 8 is a perfect gain, a tenth of that 0.2.
  CHECK(of_partitions({{1, 8}}, {{1, 0.2}}) == "none");
  CHECK(of_partitions({{1, 8}}, {{1, 80}}) == "none");
  CHECK(of_partitions({{1, 8}}, {{1, 81}}) == "row 0: bad value");
  CHECK(of_partitions({{1, 8}, {4, 9}}, {{1, 8}, {4, 0.009}}).starts_with("row 1: bad value"));
  CHECK(of_partitions({{1, 0.001}}, {{1, 0.1}}) == "none");  // Timers cannot tell.
}
TEST_CASE("requests of sizes that are too far apart are refused with the range that is allowed") {
  // Attention grows by 4, and that ten times.
  CHECK(of_requests({{1, 5}}, {{1, 200}}) == "none");
  CHECK(of_requests({{1, 5}}, {{1, 0.5}}) == "none");
  CHECK(of_requests({{1, 5}}, {{1, 5000}}) == "row 0: bad value");
}
TEST_CASE("a batch of one size alone is held between those beside it at the other") {
  const table small{{2, 5}, {8, 9}};
  CHECK(of_requests(small, {{4, 0.5}}) == "none");
  CHECK(of_requests(small, {{4, 361}}) == "row 0: bad value");
  // In proportion outside of them: half of 5 for one, twice 9 for 16.
  CHECK(of_requests(small, {{1, 0.2}}).starts_with("row 0: bad value"));
  CHECK(of_requests(small, {{16, 721}}).starts_with("row 0: bad value"));
}
TEST_CASE("a larger partition that is slower, beyond noise, is told in one line and kept") {
  across_check check{"latency.csv", across_check::sizes::partitions};
  const auto place = [](std::size_t) { return std::string{}; };
  check("a", {50, table{{1, 10}}}, {100, table{{1, 11}}}, place);
  check("a", {50, table{{1, 10, 0.3}}}, {100, table{{1, 12}}}, place);
  check("a", {50, table{{1, 0.001}}}, {100, table{{1, 0.01}}}, place);
  CHECK_FALSE(check.warning());
  check("b", {50, table{{4, 10, 0.3}}}, {100, table{{4, 14}}}, place);
  CHECK(test::gist{check.warning().value()} ==
        "latency.csv: b ... 40 % ... size 100 ... size 50 ... batch 4 ... kept");
  check("c", {50, table{{1, 10}}}, {100, table{{1, 12}}}, place);
  CHECK(test::gist{check.warning().value()} ==
        "latency.csv: b ... 40 % ... size 100 ... size 50 ... batch 4 ... 2 rows ... kept");
}
TEST_CASE("a larger request that is faster, beyond noise, is told in one line") {
  across_check check{"m.json", across_check::sizes::requests};
  const auto place = [](std::size_t) { return std::string{}; };
  check("a", {16, table{{1, 10}}}, {32, table{{1, 20}}}, place);
  CHECK_FALSE(check.warning());
  check("a", {16, table{{1, 15}}}, {32, table{{1, 10}}}, place);
  CHECK(test::gist{check.warning().value()} ==
        "m.json: a ... 50 % ... size 16 ... size 32 ... batch 1 ... kept");
}
}  // namespace
}  // namespace cohort::formats::profile_check_test
