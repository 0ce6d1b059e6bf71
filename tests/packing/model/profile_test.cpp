// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/profile.hpp>

#include <doctest/doctest.h>
#include <support/complaint.hpp>

namespace cohort::packing::profile_test {
namespace {

model_profile measured(std::vector<latency_sample> samples) {
  return {.name = "net", .slo_ms = 10, .latency = std::move(samples)};
}
cohort::test::gist refusal(const std::vector<latency_sample>& samples) {
  return cohort::test::gist_of<config_error>([&] { (void)latency_table{measured(samples)}; });
}

TEST_CASE("latency is linear between measured batches, size by size") {
  const latency_table t{measured({{4, 100, 6}, {1, 100, 3}, {1, 50, 5}, {4, 50, 11}})};
  CHECK(t.max_batch() == 4);
  CHECK(t.sizes() == std::vector<std::uint32_t>{50, 100});
  CHECK(t.has_size(50));
  CHECK_FALSE(t.has_size(75));
  CHECK(t(1, 100) == 3);
  CHECK(t(2, 100) == doctest::Approx(4));
  CHECK(t(3, 50) == doctest::Approx(9));
  CHECK(t(4, 50) == 11);
}
TEST_CASE("a table with gaps, repeats or bad numbers is refused by name") {
  CHECK(refusal({}) == "model net: latency ... samples");
  CHECK(refusal({{2, 100, 1}}) == "model net: ... latency ... batch 1 ... missing");
  CHECK(refusal({{1, 100, 1}, {2, 50, 1}}) ==
        "model net: ... latency ... batch 1 at size 50 ... missing");  // First by size, then batch.
  CHECK(refusal({{1, 100, 1}, {1, 100, 2}}) == "model net: batch 1 at size 100 ... repeated");
  CHECK(refusal({{0, 100, 1}}) == "model net: batch 0 ... 1 to 4096");
  CHECK(refusal({{1, 0, 1}}) == "model net: size 0 ... 1 to 100 percent");
  CHECK(refusal({{1, 101, 1}}) == "model net: size 101 ... 1 to 100 percent");
  CHECK(refusal({{1, 100, 0}}) == "model net: latency ... batch 1 at size 100 ... above 0");
  CHECK(refusal({{1, 100, 1e308 * 10}}) ==
        "model net: latency ... batch 1 at size 100 ... above 0");
}
}  // namespace
}  // namespace cohort::packing::profile_test
