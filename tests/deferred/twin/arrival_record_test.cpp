// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/arrival_record.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cohort::deferred::arrival_record_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{100s};

TEST_CASE("a record keeps the newest arrivals, oldest first") {
  arrival_record r{4};
  CHECK(r.size() == 0);
  for (std::uint32_t i = 0; i < 6; ++i) r.add(t0 + i * 1s, 10ms, model_id{i});
  CHECK(r.size() == 4);
  CHECK(r.added() == 6);
  CHECK(r[0].model == model_id{2});
  CHECK(r[3].model == model_id{5});
  CHECK(r[3].at == t0 + 5s);
  CHECK(r[3].slack == 10ms);
}

TEST_CASE("recent ones: of a time, but at least so many, but not too old, worked by hand") {
  arrival_record r{64};
  for (int i = 0; i <= 10; ++i) r.add(t0 + i * 1s, 10ms, model_id{0});
  const time_point now = t0 + 10s;
  CHECK(r.recent(now, 2s, 1, 100s) == 3);    // At 8, 9 and 10.
  CHECK(r.recent(now, 2s, 5, 100s) == 5);    // Two more.
  CHECK(r.recent(now, 2s, 99, 100s) == 11);  // All there are.
  CHECK(r.recent(now, 2s, 99, 4s) == 5);     // Not before 6.
  CHECK(r.recent(now + 60s, 2s, 5, 4s) == 0);
}

TEST_CASE("a record of nothing is refused") { CHECK_THROWS_AS(arrival_record{0}, config_error); }

}  // namespace
}  // namespace cohort::deferred::arrival_record_test
