// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/column_window.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <vector>

namespace cohort::kv::column_window_test {
namespace {

std::vector<column_run> runs(const column_window& w, logical_column first, logical_column last) {
  std::vector<column_run> out;
  w.for_each_run(first, last, [&](column_run r) { out.push_back(r); });
  return out;
}

TEST_CASE("a ring wraps into at most two runs") {
  column_window w{column_layout::ring, 8};
  const logical_column zero = column_window::origin;
  CHECK(w.physical(zero) == 0);
  CHECK(w.physical(zero - 3) == 5);  // To the left of everything.
  CHECK(runs(w, zero - 3, zero) == std::vector<column_run>{{5, 3}});
  CHECK(runs(w, zero - 3, zero + 2) == std::vector<column_run>{{5, 3}, {0, 2}});
  CHECK(runs(w, zero, zero).empty());
}

TEST_CASE("a ring moves nothing until the window outgrows it, however much is appended") {
  column_window w{column_layout::ring, 8};
  for (int i = 0; i < 100; ++i) {
    CHECK_FALSE(w.needs_move(8, 1));
    w.reserve(8, 1);
    CHECK(w.append(1) == column_window::origin + static_cast<unsigned>(i));
  }
  CHECK(w.capacity() == 8);
  CHECK(w.needs_move(9, 1));
  w.reserve(17, 1);
  CHECK(w.capacity() == 32);
}

TEST_CASE("a line keeps one run and slides back to its middle") {
  column_window w{column_layout::line, 8};
  // The end lies at 4: 4 columns to the left, 4 to the right.
  CHECK(w.physical(w.end()) == 4);
  for (int i = 0; i < 4; ++i) {
    CHECK_FALSE(w.needs_move(4, 1));
    w.append(1);
  }
  CHECK(w.needs_move(4, 1));
  w.reserve(4, 1);
  CHECK(w.capacity() == 8);
  CHECK(w.physical(w.end()) == 4);
  // A window of 5 needs twice that, rounded up to a power of two.
  CHECK(w.capacity_for(5) == 16);
  CHECK(w.needs_move(5, 0));
}

TEST_CASE("columns must be a power of two") {
  CHECK_THROWS_AS((column_window{column_layout::ring, 0}), config_error);
  CHECK_THROWS_AS((column_window{column_layout::ring, 12}), config_error);
  CHECK_THROWS_AS((column_window{column_layout::line, 1U << 31U}), config_error);
  CHECK_NOTHROW(column_window{column_layout::line, 1});
}

}  // namespace
}  // namespace cohort::kv::column_window_test
