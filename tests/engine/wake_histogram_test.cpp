// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/wake_histogram.hpp>

#include <doctest/doctest.h>

namespace cohort::engine::wake_histogram_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("delays are counted by powers of two of a microsecond") {
  wake_histogram h;
  CHECK(h.quantile(0.5) == 0us);
  h.add(-1ms);
  h.add(999ns);
  h.add(1us);
  h.add(3us);
  h.add(1h);
  CHECK(h.count(0) == 2);
  CHECK(h.count(1) == 1);
  CHECK(h.count(2) == 1);
  CHECK(h.count(wake_histogram::buckets - 1) == 1);
  CHECK(h.total() == 5);
  CHECK(h.quantile(0.4) == 1us);
  CHECK(h.quantile(0.8) == 4us);
}
TEST_CASE("measuring counts every nap") { CHECK(measure_wake_delays(5).total() == 5); }
}  // namespace
}  // namespace cohort::engine::wake_histogram_test
