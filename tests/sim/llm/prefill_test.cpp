// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/prefill.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <chrono>
#include <vector>

namespace cohort::sim::prefill_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("the shortest that have come are prefilled together, one group after another") {
  const std::vector<decode_request> r{{10, 1}, {4, 1}, {6, 1}, {3, 1, time_point{13ms}}};
  const decode_prefill p = prefill_beside(r, 2, 1);
  // 4 and 6 take 12 ms, then 10 alone is there; 3 comes while it is computed.
  CHECK(p.done[1] == time_point{12ms});
  CHECK(p.done[2] == time_point{12ms});
  CHECK(p.done[0] == time_point{22ms});
  CHECK(p.done[3] == time_point{25ms});
  // By length: 3 with 4, 6 with 10.
  CHECK(p.padding == 1 + 4);
}

TEST_CASE("time that no simulation reaches is refused") {
  CHECK_THROWS_AS((void)prefill_beside(std::vector<decode_request>{{1'000'000, 1}}, 1, 1e6),
                  config_error);
}

}  // namespace
}  // namespace cohort::sim::prefill_test
