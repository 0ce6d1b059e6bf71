// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/workload.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::sim::workload_test {
namespace {
using namespace std::chrono_literals;

model_spec model(const char* name, double share = 1) {
  return {.name = name, .latency = linear_latency{5ms, 1ms}, .slo = 12ms, .share = share};
}

TEST_CASE("given shares are normalised, and equal ignores them") {
  workload w;
  w.models = {model("a", 3), model("b", 1), model("c", 0)};
  CHECK(w.normalised_shares() == std::vector<double>{0.75, 0.25, 0});
  w.shares = popularity::equal;
  for (double p : w.normalised_shares()) CHECK(p == doctest::Approx(1.0 / 3));
}

TEST_CASE("zipf weighs by position") {
  workload w;
  w.models = {model("a"), model("b"), model("c")};
  w.shares = popularity::zipf;
  w.zipf_exponent = 1;  // 1, 1/2, 1/3: 11/6 in all.
  const auto part = w.normalised_shares();
  CHECK(part[0] == doctest::Approx(6.0 / 11));
  CHECK(part[1] == doctest::Approx(3.0 / 11));
  CHECK(part[2] == doctest::Approx(2.0 / 11));
}

TEST_CASE("without a limit, batches are as large as the SLO allows alone") {
  model_spec m = model("a");
  CHECK(effective_max_batch(m) == 7);  // 5 + 7 <= 12.
  m.max_batch = 3;
  CHECK(effective_max_batch(m) == 3);
  m.max_batch = 100;  // A user's limit is kept even where the SLO allows less.
  CHECK(effective_max_batch(m) == 100);
  m.max_batch = 0;
  m.latency = linear_latency{5ms, 0ms};
  CHECK(effective_max_batch(m) == 65536);
}

TEST_CASE("a model's latency is that of its table or of its line") {
  model_spec m = model("a");
  CHECK(m.latency_of(4) == 9ms);
  m.latency = table_latency{{{1, 5ms}, {4, 8ms}}};
  CHECK(m.latency_of(2) == 6ms);
}

}  // namespace
}  // namespace cohort::sim::workload_test
