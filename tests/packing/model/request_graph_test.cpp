// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/request_graph.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::packing::request_graph_test {
namespace {
using graph = request_graph;

/// Each L(b) = 1 + b ms on the whole device, batches 1 to 8.
const latency_grid& grid() {
  static const latency_grid g{
      {test::unit_model("a", 100), test::unit_model("b", 100), test::unit_model("c", 100)},
      test::halves()};
  return g;
}
graph leaf(std::uint32_t m, double times = 1) { return graph::model(model_id{m}, times); }

TEST_CASE("equal stages in series share the SLO equally") {
  // 2 (1 + b) within a stage's part: b = 4 each in 10 ms costs 2 · 5/4 = 2.5 ms a request; 8 and 12
  // ms allow 3 and 5: 4/3 + 6/5 = 2.53.
  const stage_demand d = split_slos(
      grid(), {{.graph = graph::series({leaf(0), leaf(1)}), .slo_ms = 20, .rate_rps = 7}}, 20);
  CHECK(d.slos_ms[0] == doctest::Approx(10));
  CHECK(d.slos_ms[1] == doctest::Approx(10));
  CHECK(std::isinf(d.slos_ms[2]));
  CHECK(d.rates_rps == std::vector<double>{7, 7, 0});
}
TEST_CASE("a stage that runs twice gets more, and twice the rate") {
  // With b + c = 8: 1/b + 2/c is 0.733 at 3 and 5, 0.75 at 4 and 4, 0.833 at 2 and 6.
  const stage_demand d = split_slos(
      grid(), {{.graph = graph::series({leaf(0), leaf(1, 2)}), .slo_ms = 20, .rate_rps = 7}}, 20);
  CHECK(d.slos_ms[0] == doctest::Approx(8));
  CHECK(d.slos_ms[1] == doctest::Approx(12));
  CHECK(d.rates_rps == std::vector<double>{7, 14, 0});
}
TEST_CASE("what no batch can use is shared in proportion") {
  // Both reach their largest batch, 8, in 18 ms each; 60 ms is 36 · 5/3.
  const stage_demand d = split_slos(
      grid(), {{.graph = graph::series({leaf(0), leaf(1)}), .slo_ms = 60, .rate_rps = 1}}, 60);
  CHECK(d.slos_ms[0] == doctest::Approx(30));
  CHECK(d.slos_ms[1] == doctest::Approx(30));
}
TEST_CASE("batches that are better by noise alone get no time for it") {
  // From b = 4 on L(b) = 1.25 b, so that larger batches gain nothing: 10 ms each, and the other 80
  // of 100 are shared in proportion. Noise of ±0.2 % makes some larger batch the best one.
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    std::vector<model_profile> noisy;
    for (const char* name : {"a", "b"}) {
      model_profile m{.name = name, .slo_ms = 100};
      for (std::uint32_t b = 1; b <= 32; ++b) {
        const double wobble = 1 + 0.002 * (random.below(2001U) / 1000.0 - 1);
        m.latency.push_back({b, 100, std::max(5.0, 1.25 * b) * wobble});
      }
      noisy.push_back(std::move(m));
    }
    const latency_grid g{noisy, {.sizes = {100}}};
    const stage_demand d =
        split_slos(g, {{.graph = graph::series({leaf(0), leaf(1)}), .slo_ms = 100, .rate_rps = 1}});
    CHECK(d.slos_ms[0] == doctest::Approx(50).epsilon(0.03));
    CHECK(d.slos_ms[1] == doctest::Approx(50).epsilon(0.03));
  }
}
TEST_CASE("parts in parallel get the same: the traffic application") {
  // A detector, then two recognisers: as 1/b + 2/c above, for the two cost together.
  const stage_demand d =
      split_slos(grid(),
                 {{.graph = graph::series({leaf(0), graph::parallel({leaf(1), leaf(2)})}),
                   .slo_ms = 20,
                   .rate_rps = 100}},
                 20);
  CHECK(d.slos_ms[0] == doctest::Approx(8));
  CHECK(d.slos_ms[1] == doctest::Approx(12));
  CHECK(d.slos_ms[2] == doctest::Approx(12));
  CHECK(d.rates_rps == std::vector<double>{100, 100, 100});
}
TEST_CASE("models that occur more than once add their rates: the game application") {
  std::vector<graph> parts(6, leaf(0));
  parts.push_back(leaf(1));
  const application game{.graph = graph::parallel(parts), .slo_ms = 95, .rate_rps = 100};
  const stage_demand d = split_slos(grid(), {game});
  CHECK(d.slos_ms[0] == 95);
  CHECK(d.slos_ms[1] == 95);
  CHECK(d.rates_rps == std::vector<double>{600, 100, 0});
  // A second application with a shorter SLO for one of them.
  const stage_demand both =
      split_slos(grid(), {game, {.graph = leaf(1), .slo_ms = 50, .rate_rps = 11}});
  CHECK(both.slos_ms[0] == 95);
  CHECK(both.slos_ms[1] == 50);
  CHECK(both.rates_rps[1] == 111);
}
TEST_CASE("applications that cannot be are errors") {
  const auto refused = [](const application& a) {
    CHECK_THROWS_AS(static_cast<void>(split_slos(grid(), {a}, 20)), config_error);
  };
  refused({.graph = leaf(0), .slo_ms = 3.9, .rate_rps = 1});  // 2 L(1) = 4 ms.
  refused({.graph = graph::series({leaf(0), leaf(1)}), .slo_ms = 7.9, .rate_rps = 1});
  refused({.graph = leaf(3), .slo_ms = 20, .rate_rps = 1});
  refused({.graph = leaf(0), .slo_ms = 0, .rate_rps = 1});
  refused({.graph = leaf(0), .slo_ms = 20, .rate_rps = -1});
  CHECK_THROWS_AS(leaf(0, 0), config_error);
  CHECK_THROWS_AS(static_cast<void>(graph::series({})), config_error);
  CHECK_THROWS_AS(static_cast<void>(split_slos(grid(), {}, 0)), config_error);
}

/// The longest path of a graph under given SLOs.
double path_ms(const graph& g, const std::vector<double>& slos) {
  if (g.what() == graph::kind::model) return slos[g.model().index()];
  double all = 0;
  for (const graph& p : g.parts()) {
    const double one = path_ms(p, slos);
    all = g.what() == graph::kind::series ? all + one : std::max(all, one);
  }
  return all;
}
TEST_CASE("on random graphs the longest path keeps the SLO, and every stage can run") {
  int splits = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 5), {}};
    const std::function<graph(int)> draw = [&](int depth) {
      if (depth == 0 || random.one_in(3)) return leaf(random.below(5U), 1 + random.below(3));
      std::vector<graph> parts;
      for (std::uint32_t i = 1 + random.below(3U); i-- > 0;) parts.push_back(draw(depth - 1));
      return random.one_in(2) ? graph::series(std::move(parts)) : graph::parallel(std::move(parts));
    };
    const application a{.graph = draw(3), .slo_ms = 20.0 + random.below(400U), .rate_rps = 10};
    std::optional<stage_demand> d;
    try {
      d = split_slos(g, {a}, 100);
    } catch (const config_error&) {
      continue;  // Too small; judged by hand above.
    }
    ++splits;
    CHECK(path_ms(a.graph, d->slos_ms) <= a.slo_ms * (1 + 1e-9));
    a.graph.for_each_model([&](model_id m, double) {
      CHECK(2 * g.latency(m.index(), g.sizes() - 1, 1) <= d->slos_ms[m.index()] * (1 + 1e-6));
    });
  }
  CHECK(splits > 100);
}
}  // namespace
}  // namespace cohort::packing::request_graph_test
