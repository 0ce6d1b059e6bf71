// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/plans/request_flow.hpp>

#include <doctest/doctest.h>

#include <support/random_source.hpp>

#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace cohort::sim::request_flow_test {
namespace {
using graph = packing::request_graph;
using state = request_flow::state;

graph leaf(std::uint32_t m, double times = 1) { return graph::model(model_id{m}, times); }
struct runner {
  void operator()(request_flow::part p, model_id m) { started.emplace_back(p, m.value()); }
  [[nodiscard]] std::vector<std::uint32_t> models() const {
    std::vector<std::uint32_t> m;
    for (const auto& s : started) m.push_back(s.second);
    return m;
  }
  std::vector<std::pair<request_flow::part, std::uint32_t>> started;
};
constexpr auto half = [] { return 0.5; };
using models = std::vector<std::uint32_t>;

TEST_CASE("a detector runs first, then its recognisers at once, and the last of them ends it") {
  request_flow f{graph::series({leaf(7), graph::parallel({leaf(1), leaf(2, 2)})})};
  runner run;
  f.start(5, half, run);
  CHECK(run.models() == models{7});
  CHECK(f.arrived_ms(run.started[0].first) == 5);
  CHECK(f.end(run.started[0].first, run) == state::going);
  CHECK(run.models() == models{7, 1, 2, 2});
  CHECK(f.end(run.started[2].first, run) == state::going);
  CHECK(f.end(run.started[1].first, run) == state::going);
  CHECK(f.in_flight() == 1);
  CHECK(f.end(run.started[3].first, run) == state::ended);
  CHECK(f.in_flight() == 0);
}
TEST_CASE("a request that loses a part fails once and goes no further") {
  request_flow f{graph::series({graph::parallel({leaf(0), leaf(1)}), leaf(2)})};
  runner run;
  f.start(0, half, run);
  CHECK(f.lose(run.started[1].first) == state::failed);
  CHECK(f.in_flight() == 1);
  CHECK(f.end(run.started[0].first, run) == state::going);
  CHECK(run.models() == models{0, 1});
  CHECK(f.in_flight() == 0);
  f.start(1, half, run);
  CHECK(f.lose(run.started[2].first) == state::failed);
  CHECK(f.lose(run.started[3].first) == state::going);
  CHECK(f.in_flight() == 0);
}
TEST_CASE("a fractional number of times is drawn") {
  request_flow f{leaf(0, 1.4)};
  runner run;
  f.start(0, half, run);  // 0.5 is not below 0.4.
  CHECK(run.started.size() == 1);
  f.start(0, [] { return 0.3; }, run);
  CHECK(run.started.size() == 3);
  request_flow none{graph::series({leaf(0, 0.4), leaf(1, 0.4)})};
  none.start(0, half, run);
  CHECK(none.in_flight() == 0);
  CHECK(run.started.size() == 3);
}
TEST_CASE("on random graphs every request runs each of its parts once, in order, and ends once") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    std::uint32_t leaves = 0;
    const std::function<graph(int)> draw = [&](int depth) {
      if (depth == 0 || random.one_in(3)) return leaf(leaves++, 1 + random.below(3));
      std::vector<graph> parts;
      for (std::uint32_t i = 1 + random.below(3U); i-- > 0;) parts.push_back(draw(depth - 1));
      return random.one_in(2) ? graph::series(std::move(parts)) : graph::parallel(std::move(parts));
    };
    const graph g = draw(3);
    std::map<std::uint32_t, double> wanted;
    g.for_each_model([&](model_id m, double times) { wanted[m.value()] += times; });
    // Which models must have ended before another starts.
    std::map<std::uint32_t, std::vector<std::uint32_t>> before;
    const std::function<void(const graph&, std::vector<std::uint32_t>)> order =
        [&](const graph& x, std::vector<std::uint32_t> earlier) {
          if (x.what() == graph::kind::model) before[x.model().value()] = earlier;
          for (const graph& p : x.parts()) {
            order(p, earlier);
            if (x.what() != graph::kind::series) continue;
            p.for_each_model([&](model_id m, double) { earlier.push_back(m.value()); });
          }
        };
    order(g, {});
    request_flow f{g};
    for (int n = 0; n < 5; ++n) {
      runner run;
      std::map<std::uint32_t, double> ended;
      f.start(0, half, run);
      std::size_t checked = 0;
      int ends = 0;
      std::map<std::uint32_t, double> started;
      while (!run.started.empty()) {
        for (; checked < run.started.size(); ++checked) {
          const std::uint32_t m = run.started[checked].second;
          ++started[m];
          for (const std::uint32_t b : before[m]) REQUIRE(ended[b] == wanted[b]);
        }
        const std::size_t i = random.below(run.started.size());
        const auto [p, m] = run.started[i];
        run.started.erase(run.started.begin() + static_cast<std::ptrdiff_t>(i));
        ++ended[m];
        ends += f.end(p, run) == state::ended;
        --checked;
      }
      CHECK(ends == 1);
      CHECK(ended == wanted);
      CHECK(f.in_flight() == 0);
    }
  }
}
}  // namespace
}  // namespace cohort::sim::request_flow_test
