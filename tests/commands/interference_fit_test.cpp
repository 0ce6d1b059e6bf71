// SPDX-License-Identifier: Apache-2.0
#include <commands/interference_fit.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <commands/pair_turns.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::commands::interference_fit_test {
namespace {
using formats::measured_neighbour;
using formats::placed_batch;
using packing::interference_model;
using packing::model_profile;

constexpr interference_model truth{
    .l2_self = 0.3, .l2_other = 0.5, .memory_self = 0.2, .memory_other = 0.4, .constant = 1.05};

std::vector<model_profile> models_of(std::size_t n) {
  cohort::test::random_source random{3};
  const auto part = [&random] { return 0.1 + random.below(900U) / 1000.0; };
  std::vector<model_profile> models;
  for (std::size_t i = 0; i < n; ++i) {
    models.push_back({.name = "m" + std::to_string(i),
                      .slo_ms = 100,
                      .usage = {{1, part(), part()}, {8, part(), part()}}});
  }
  return models;
}

/// A machine whose interference is known, that has slow phases and measures with an error.
struct known_machine {
  const std::vector<model_profile>& models;
  pair_case what;
  double error = 0;  // Relative, at most.
  cohort::test::random_source& random;
  int block = 0;

  [[nodiscard]] double read(double ms) {
    const double slow = block % 11 > 7 ? 2.5 : 1;
    return ms * slow * (1 + error * (random.below(2000U) / 1000.0 - 1));
  }
  double alone(std::size_t side) {
    if (side == 1) ++block;
    return read(side == 0 ? 3 : 20);
  }
  std::array<double, 2> together() {
    const auto usage = [&](const placed_batch& b) {
      return packing::usage_of(models[b.model], b.batch, b.size_pct);
    };
    const double first = truth.factor(usage(what.first), usage(what.second));
    const double second = truth.factor(usage(what.second), usage(what.first));
    ++block;
    return {read(3 * first), read(20 * second)};
  }
};

std::vector<measured_neighbour> measure_all(const std::vector<model_profile>& models, double error,
                                            std::uint32_t turns) {
  cohort::test::random_source random{17};
  std::vector<measured_neighbour> rows;
  const std::vector<std::vector<std::uint32_t>> batches(models.size(), {1, 8});
  const std::vector<partition_split> splits{{40, 60}, {50, 50}, {60, 40}};
  for (const auto& round : rounds_of(models.size(), 1)) {
    for (const model_pair& pair : round) {
      for (const pair_case& c : cases_of(pair, batches, splits)) {
        known_machine machine{.models = models, .what = c, .error = error, .random = random};
        const auto t = measure_turns(machine, turns);
        const auto add = [&rows, turns](const placed_batch& self, const placed_batch& other,
                                        const side_times& side) {
          rows.push_back({.self = self,
                          .other = other,
                          .alone_ms = side.alone_ms,
                          .beside_ms = side.beside_ms,
                          .factor = side.factor,
                          .noise = side.noise,
                          .turns = turns});
        };
        add(c.first, c.second, t[0]);
        add(c.second, c.first, t[1]);
      }
    }
  }
  return rows;
}

TEST_CASE("the interference of a machine with slow phases is recovered") {
  const auto models = models_of(5);
  const interference_fit f = fit_pairs(measure_all(models, 0, 7), models, {});
  REQUIRE(f.model.has_value());
  CHECK(f.model->l2_self == doctest::Approx(0.3));
  CHECK(f.model->l2_other == doctest::Approx(0.5));
  CHECK(f.model->memory_self == doctest::Approx(0.2));
  CHECK(f.model->memory_other == doctest::Approx(0.4));
  CHECK(f.model->constant == doctest::Approx(1.05));
  // Of 15 pairs a third, rounded up, is held back.
  CHECK_FALSE(f.one_by_one);
  CHECK(f.held == 5);
  CHECK(f.fitted == 10);
  CHECK(f.error.p95 < 1e-9);
  CHECK(f.ignored.p50 > 0.1);
}
TEST_CASE("what is measured with an error is told with about that error") {
  const auto models = models_of(6);
  const interference_fit f = fit_pairs(measure_all(models, 0.04, 5), models, {});
  REQUIRE(f.model.has_value());
  CHECK(f.model->constant == doctest::Approx(1.05).epsilon(0.05));
  CHECK(f.error.p50 > 0.001);
  CHECK(f.error.p95 < 0.06);
  CHECK(f.error.p95 < f.ignored.p50);
}
TEST_CASE("pairs are held back whole, and the same ones whatever the order of the rows") {
  const auto models = models_of(5);
  auto rows = measure_all(models, 0.02, 3);
  const interference_fit f = fit_pairs(rows, models, {.hold_back = 0.2, .seed = 9});
  std::set<model_pair> held;
  for (const foretold& t : f.told) held.insert(pair_of(rows[t.row]));
  CHECK(held.size() == 3);
  std::size_t rows_of_held = 0;
  for (const measured_neighbour& r : rows) rows_of_held += held.count(pair_of(r));
  CHECK(f.told.size() == rows_of_held);
  std::ranges::reverse(rows);
  const interference_fit turned = fit_pairs(rows, models, {.hold_back = 0.2, .seed = 9});
  CHECK(turned.error.p90 == doctest::Approx(f.error.p90));
  CHECK(turned.model->l2_self == doctest::Approx(f.model->l2_self));
  const interference_fit all = fit_pairs(rows, models, {.hold_back = 0});
  CHECK(all.fitted == 15);
  CHECK(all.told.empty());
}
TEST_CASE("with few pairs each is told by the others") {
  // All usages are equal, so a fit is the mean of the factors it has seen.
  const std::vector<model_profile> models{{.name = "a", .slo_ms = 1, .usage = {{1, 0.5, 0}}},
                                          {.name = "b", .slo_ms = 1, .usage = {{1, 0.5, 0}}}};
  const auto row = [](std::size_t a, std::size_t b, double f) {
    return measured_neighbour{.self = {a, 1, 50}, .other = {b, 1, 50}, .factor = f};
  };
  const std::vector<measured_neighbour> rows{row(0, 0, 1.2), row(0, 1, 1.4), row(1, 1, 1.6)};
  const interference_fit f = fit_pairs(rows, models, {});
  REQUIRE(f.model.has_value());
  CHECK(f.model->constant == doctest::Approx(1.4));
  CHECK(f.one_by_one);
  CHECK(f.fitted == 3);
  CHECK(f.held == 3);
  // 1.5 for 1.2: 25 %; 1.4 for 1.4: 0 %; 1.3 for 1.6: 18.75 %.
  CHECK(f.error.p50 == doctest::Approx(0.1875));
  CHECK(f.error.p90 == doctest::Approx(0.25));
  // 1 for 1.2, 1.4, 1.6: 16.7 %, 28.6 %, 37.5 %.
  CHECK(f.ignored.p50 == doctest::Approx(0.4 / 1.4));
  CHECK(f.ignored.p95 == doctest::Approx(0.375));
}
TEST_CASE("one pair is fitted to, and its error is not known") {
  const std::vector<model_profile> models{{.name = "a", .slo_ms = 1, .usage = {{1, 0.5, 0}}}};
  const std::vector<measured_neighbour> rows{
      {.self = {0, 1, 50}, .other = {0, 1, 50}, .factor = 1.3}};
  const interference_fit f = fit_pairs(rows, models, {});
  CHECK(f.model->constant == doctest::Approx(1.3));
  CHECK(f.told.empty());
  CHECK(f.held == 0);
}
TEST_CASE("models without usage are not fitted to, and without others there is no fit") {
  auto models = models_of(3);
  auto rows = measure_all(models, 0, 3);
  models[2].usage.clear();
  const interference_fit f = fit_pairs(rows, models, {});
  REQUIRE(f.model.has_value());
  CHECK(f.fitted == 3);  // Of six.
  for (model_profile& m : models) m.usage.clear();
  const interference_fit none = fit_pairs(rows, models, {});
  CHECK_FALSE(none.model.has_value());
  CHECK(test::gist(none.why_not) == "no ... pair ... usage ...");
  CHECK_FALSE(fit_pairs({}, models, {}).model.has_value());
}
TEST_CASE("what is measured on a machine with slow phases is read again") {
  const auto models = models_of(4);
  const auto rows = measure_all(models, 0.05, 5);
  CHECK(formats::parse_pairs("p.csv", formats::pairs_csv(rows, models), models).size() ==
        rows.size());
}
TEST_CASE("a fit that would tell what cannot be on other sizes is none") {
  std::vector<model_profile> models{{.name = "a", .usage = {{1, 0.2, 0}}},
                                    {.name = "b", .usage = {{1, 0.21, 0}}}};
  // Measured on halves alone: 100 times 0.1 or 0.105, less 9. On a fifth that is 4 less 9.
  std::vector<measured_neighbour> rows;
  for (const std::size_t self : {0U, 1U}) {
    for (const std::size_t other : {0U, 1U}) {
      rows.push_back(
          {.self = {self, 1, 50}, .other = {other, 1, 50}, .factor = other == 0 ? 1 : 1.5});
    }
  }
  for (model_profile& m : models) m.latency = {{1, 50, 1}};
  CHECK(believable_fit(rows, models, {}).model);
  for (model_profile& m : models) m.latency = {{1, 20, 1}, {1, 50, 1}};
  const interference_fit f = believable_fit(rows, models, {});
  CHECK_FALSE(f.model);
  CHECK(f.told.empty());
  CHECK(test::gist(f.why_not) == "... factor of -5 ... at size 20 beside a at size 20");
}

}  // namespace
}  // namespace cohort::commands::interference_fit_test
