// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/interference.hpp>

#include <doctest/doctest.h>

#include <array>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::packing::interference_test {
namespace {

const model_profile net{.name = "net", .usage = {{1, 0.2, 0.4}, {5, 0.6, 0.8}}};
constexpr interference_model paper{
    .l2_self = 0.1, .l2_other = 0.5, .memory_self = 0.2, .memory_other = 0.3, .constant = 0.9};

TEST_CASE("usage is linear between batches, held outside and in proportion to the size") {
  CHECK(usage_of(net, 3, 100).l2 == doctest::Approx(0.4));
  CHECK(usage_of(net, 3, 50).memory == doctest::Approx(0.3));
  CHECK(usage_of(net, 5, 100).memory == doctest::Approx(0.8));
  CHECK(usage_of(net, 9, 100).memory == doctest::Approx(0.8));
  CHECK(usage_of({}, 1, 100).l2 == 0);
  const model_profile late{.name = "late", .usage = {{4, 0.1, 0.2}}};
  CHECK(usage_of(late, 1, 100).l2 == doctest::Approx(0.1));
}
TEST_CASE("the factor is linear and at least 1, and excesses of neighbours add") {
  // 0.1 * 0.4 + 0.5 * 0.2 + 0.2 * 0.5 + 0.3 * 0.8 + 0.9 = 1.38.
  const device_usage self{.l2 = 0.4, .memory = 0.5};
  const device_usage other{.l2 = 0.2, .memory = 0.8};
  CHECK(paper.factor(self, other) == doctest::Approx(1.38));
  CHECK(paper.factor(device_usage{}, device_usage{}) == 1);
  const std::array<device_usage, 2> both{other, device_usage{}};
  // The second alone: 0.04 + 0.1 + 0.9 = 1.04.
  CHECK(paper.factor(self, both) == doctest::Approx(1.42));
  CHECK(paper.factor(self, std::span<const device_usage>{}) == 1);
}
TEST_CASE("a fit recovers the coefficients behind exact samples") {
  cohort::test::random_source random{7};
  const auto part = [&random] { return random.below(1000U) / 1000.0; };
  const auto sample = [&](double noise) {
    interference_sample s{.self = {part(), part()}, .other = {part(), part()}, .factor = 1};
    s.factor =
        0.1 * s.self.l2 + 0.5 * s.other.l2 + 0.2 * s.self.memory + 0.3 * s.other.memory + 1.05;
    s.factor *= 1 + noise * (part() - 0.5);
    return s;
  };
  std::vector<interference_sample> train;
  std::vector<interference_sample> held_out;
  for (int i = 0; i < 200; ++i) train.push_back(sample(0));
  const interference_model m = interference_model::fit(train);
  CHECK(m.l2_self == doctest::Approx(0.1));
  CHECK(m.l2_other == doctest::Approx(0.5));
  CHECK(m.memory_self == doctest::Approx(0.2));
  CHECK(m.memory_other == doctest::Approx(0.3));
  CHECK(m.constant == doctest::Approx(1.05));
  for (int i = 0; i < 400; ++i) held_out.push_back(sample(0.2));
  const interference_error e = m.error_on(held_out);
  // Errors are uniform up to 10 %: half of them below 5 %, nine tenths below 9 %.
  CHECK(e.p50 == doctest::Approx(0.05).epsilon(0.2));
  CHECK(e.p90 == doctest::Approx(0.09).epsilon(0.1));
  CHECK(e.p95 >= e.p90);
  CHECK(e.p95 < 0.112);
}
TEST_CASE("percentiles of the error are nearest ranks") {
  std::vector<interference_sample> samples;
  for (int i = 1; i <= 10; ++i)
    samples.push_back({.self = {}, .other = {}, .factor = 1 + i / 10.0});
  const interference_model flat{.constant = 1};
  const interference_error e = flat.error_on(samples);
  CHECK(e.p50 == doctest::Approx(0.5 / 1.5));  // Of 10 the 5th smallest.
  CHECK(e.p90 == doctest::Approx(0.9 / 1.9));
  CHECK(e.p95 == doctest::Approx(0.5));
  CHECK(flat.error_on({}).p95 == 0);
}
TEST_CASE("a fit refuses too few, constant or impossible samples") {
  std::vector<interference_sample> samples(4);
  CHECK_THROWS_AS(static_cast<void>(interference_model::fit(samples)), config_error);
  samples.resize(20);
  CHECK_THROWS_AS(static_cast<void>(interference_model::fit(samples)), config_error);
  samples[3].factor = 0;
  CHECK_THROWS_AS(static_cast<void>(interference_model::fit(samples)), config_error);
}
TEST_CASE("a usage that is the same in all samples has no coefficient") {
  // f = 1.1 + 0.5 l2_self + 0.25 l2_other, memory always 0.3.
  std::vector<interference_sample> samples;
  for (const auto& [self, other] : {std::pair{0.2, 0.4}, {0.4, 0.2}, {0.8, 0.8}, {0.1, 0.9}}) {
    samples.push_back({{self, 0.3}, {other, 0.3}, 1.1 + 0.5 * self + 0.25 * other});
  }
  const interference_model m = interference_model::fit_what_varies(samples);
  CHECK(m.l2_self == doctest::Approx(0.5));
  CHECK(m.l2_other == doctest::Approx(0.25));
  CHECK(m.memory_self == 0);
  CHECK(m.memory_other == 0);
  CHECK(m.constant == doctest::Approx(1.1));
  // Nothing varies: the mean.
  const std::vector<interference_sample> equal{{{}, {}, 1.2}, {{}, {}, 1.6}};
  CHECK(interference_model::fit_what_varies(equal).constant == doctest::Approx(1.4));
  CHECK(interference_model::fit_what_varies(equal).l2_self == 0);
}
TEST_CASE("a fit of what varies needs as many samples as coefficients, and each on its own") {
  const auto refused = [](const std::vector<interference_sample>& samples) {
    CHECK_THROWS_AS(static_cast<void>(interference_model::fit_what_varies(samples)), config_error);
  };
  refused({});
  refused({{{0.1, 0}, {0.2, 0}, 1}, {{0.2, 0}, {0.1, 0}, 1}});  // Two for three.
  // Both sides always use the same.
  refused({{{0.1, 0}, {0.1, 0}, 1}, {{0.2, 0}, {0.2, 0}, 1}, {{0.4, 0}, {0.4, 0}, 1.2}});
}
TEST_CASE("a factor is by usage where both are known, else as measured, else 1") {
  const model_profile other = net;
  model_profile bare{.name = "bare", .beside = {1.5, 1.2}};
  const device_usage self{.l2 = 0.4, .memory = 0.5};
  const device_usage used{.l2 = 0.2, .memory = 0.8};
  CHECK(factor_between(paper, net, self, other, 0, used) == doctest::Approx(1.38));
  CHECK(factor_between(paper, bare, {}, other, 0, used) == 1.5);
  CHECK(factor_between(paper, bare, {}, bare, 1, {}) == 1.2);
  CHECK(factor_between(paper, net, self, bare, 0, {}) == 1);
}
}  // namespace
}  // namespace cohort::packing::interference_test
