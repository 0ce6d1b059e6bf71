// SPDX-License-Identifier: Apache-2.0
#include <commands/refine_batches.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <support/random_source.hpp>
#include <utility>
#include <vector>

namespace cohort::commands::refine_batches_test {
namespace {
using options = batch_refinement::options;
using sizes = std::vector<std::uint32_t>;

struct outcome {
  std::map<std::uint32_t, double> measured{};
  batch_refinement how;

  [[nodiscard]] sizes all() const {
    sizes out;
    for (const auto& [b, ms] : measured) out.push_back(b);
    return out;
  }
  [[nodiscard]] bool has(std::uint32_t b) const { return measured.contains(b); }
  /// On the line between the measured sizes around.
  [[nodiscard]] double at(std::uint32_t b) const {
    const auto above = measured.lower_bound(b);
    if (above->first == b) return above->second;
    const auto below = std::prev(above);
    const double part = 1.0 * (b - below->first) / (above->first - below->first);
    return below->second + part * (above->second - below->second);
  }
};

/// Measures `f`, whose medians have this relative standard error.
template <class F>
outcome refine(const options& o, F f, double noise = 0) {
  outcome r{.how = batch_refinement{o}};
  while (!r.how.wanted().empty()) {
    for (const std::uint32_t b : r.how.wanted()) {
      REQUIRE_FALSE(r.has(b));  // Nothing is wanted twice.
      r.measured[b] = f(b);
    }
    std::map<std::uint32_t, refined_size> measured;
    for (const auto& [b, ms] : r.measured) measured[b] = {.ms = ms, .noise_ms = noise * ms};
    r.how.take(std::move(measured));
  }
  return r;
}
double affine(std::uint32_t b) { return 5 + 1.25 * b; }
double steps_of_32(std::uint32_t b) { return 4 + 8 * std::ceil(b / 32.0); }

TEST_CASE("it begins with few sizes, the first and the largest among them") {
  CHECK(batch_refinement{{.largest = 64}}.wanted() == sizes{1, 4, 16, 64});
  CHECK(batch_refinement{{.largest = 32}}.wanted() == sizes{1, 4, 16, 32});
  CHECK(batch_refinement{{.largest = 5}}.wanted() == sizes{1, 4, 5});
  CHECK(batch_refinement{{.largest = 2}}.wanted() == sizes{1, 2});
  CHECK(batch_refinement{{.largest = 1}}.wanted() == sizes{1});
}
TEST_CASE("of a line only the middles of the first intervals are measured") {
  const outcome r = refine({.largest = 64}, affine);
  CHECK(r.all() == sizes{1, 3, 4, 11, 16, 41, 64});
  CHECK_FALSE(r.how.was_cut_short());
  REQUIRE(r.how.added().size() == 3);
  for (const added_size& a : r.how.added()) {
    CHECK_FALSE(a.is_off());
    CHECK(a.gap == doctest::Approx(0));
    CHECK(a.noise == 0.02);
  }
  CHECK(refine({.largest = 1}, affine).all() == sizes{1});
}
TEST_CASE("a step is found to the very size at which it rises") {
  const outcome r = refine({.largest = 64}, steps_of_32);
  CHECK(r.has(32));
  CHECK(r.has(33));
  for (std::uint32_t b = 1; b <= 64; ++b) CHECK(r.at(b) == doctest::Approx(steps_of_32(b)));
  CHECK(r.measured.size() <= 17);  // 4 first ones, 3 middles, and twice 5 on the way to 32.
  // 41 takes 20 ms, 25/48 of the way from 12 to 20 is 16.17.
  const auto& added = r.how.added();
  const auto first = std::ranges::find(added, 41U, &added_size::batch);
  REQUIRE(first != added.end());
  CHECK(first->below == 16);
  CHECK(first->above == 64);
  CHECK(first->gap == doctest::Approx(20 / (12 + 8 * 25 / 48.0) - 1));
  CHECK(first->is_off());
}
TEST_CASE("of a bend so many sizes are measured that lines are off by little") {
  const auto root = [](std::uint32_t b) { return 2 * std::sqrt(1.0 * b); };
  const outcome r = refine({.largest = 256}, root);
  CHECK_FALSE(r.how.was_cut_short());
  CHECK(r.measured.size() <= 24);
  for (std::uint32_t b = 1; b <= 256; ++b) {
    CAPTURE(b);
    CHECK(std::abs(r.at(b) / root(b) - 1) < 0.03);
  }
}
TEST_CASE("the sizes are limited, and the worst lines are checked first") {
  const outcome r = refine({.largest = 64, .most_sizes = 9}, steps_of_32);
  CHECK(r.measured.size() == 9);
  CHECK(r.how.was_cut_short());
  CHECK(refine({.largest = 1024, .most_sizes = 3}, affine).all() == sizes{1, 4, 16, 64, 256, 1024});
}
TEST_CASE("what is within the noise adds nothing, on random lines with random noise") {
  int more = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const double fixed = 1 + random.below(20U);
    const double noise = 0.05;
    const outcome r = refine(
        {.largest = 64},
        [&](std::uint32_t b) {
          // The sum of twelve has variance 1.
          double normal = -6;
          for (int i = 0; i < 12; ++i) normal += random.below(1'000'000U) / 1e6;
          return (fixed + b) * (1 + noise * normal);
        },
        noise);
    more += r.measured.size() > 7;
    for (const added_size& a : r.how.added()) CHECK(a.noise > 0.1);
  }
  // Three standard errors are exceeded once in 370 times; there are three middles a run.
  CHECK(more <= 8);
}
TEST_CASE("the same measurements lead to the same sizes") {
  CHECK(refine({.largest = 300}, steps_of_32).all() == refine({.largest = 300}, steps_of_32).all());
}
}  // namespace
}  // namespace cohort::commands::refine_batches_test
