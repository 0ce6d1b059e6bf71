// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/decode_slot.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace cohort::kv::decode_slot_test {
namespace {

TEST_CASE("a slot's runs leave out its holes, and wrap with the ring") {
  column_window w{column_layout::ring, 8};
  const logical_column first = w.append(12);  // The first lies at column 0 of 8.
  decode_slot s;
  s.start = first + 5;
  s.holes = {{first + 9, first + 10}};
  std::vector<column_run> runs;
  s.for_each_run(w, [&](column_run r) { runs.push_back(r); });
  // 5 to 7, then 8 at column 0; 10 and 11 at columns 2 and 3.
  CHECK(runs == std::vector<column_run>{{5, 3}, {0, 1}, {2, 2}});
}

TEST_CASE("runs of two mappings are paired column by column") {
  column_window small{column_layout::ring, 4};
  const logical_column first = small.append(6);
  column_window large = small;
  large.set_capacity(8);
  decode_slot s;
  s.start = first + 2;
  std::vector<std::vector<std::uint32_t>> pairs;
  pair_runs(small, large, s, [&](std::uint32_t from, std::uint32_t to, std::uint32_t count) {
    pairs.push_back({from, to, count});
  });
  CHECK(pairs == std::vector<std::vector<std::uint32_t>>{{2, 2, 2}, {0, 4, 2}});
}

}  // namespace
}  // namespace cohort::kv::decode_slot_test
