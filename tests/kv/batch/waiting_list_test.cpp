// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/waiting_list.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::waiting_list_test {
namespace {

TEST_CASE("those taken pass by whoever stood before them, and nobody else") {
  waiting_list<char> w;
  w.push({.sequence = 1, .length = 3}, 'a');
  w.push({.sequence = 2, .length = 3}, 'b');
  w.push({.sequence = 3, .length = 3}, 'c');
  CHECK(w.take(1) == 'b');
  CHECK(w.views()[0].skipped == 1);
  CHECK(w.views()[1].skipped == 0);
  CHECK(w.erase(1) == 'c');  // Cancelled: that passes nobody by.
  CHECK(w.views()[0].skipped == 1);
}

TEST_CASE("one that comes back takes its place by its sequence") {
  waiting_list<char> w;
  w.push({.sequence = 5, .length = 1}, 'e');
  w.push({.sequence = 9, .length = 1}, 'i');
  w.push({.sequence = 7, .length = 1, .was_running = true}, 'g');
  w.push({.sequence = 1, .length = 1, .was_running = true}, 'a');
  CHECK(w[0] == 'a');
  CHECK(w[1] == 'e');
  CHECK(w[2] == 'g');
  CHECK(w[3] == 'i');
  CHECK(w.take(0) == 'a');
  CHECK(w.views()[0].skipped == 0);
}

TEST_CASE("the list is what a plain sorted vector would be") {
  struct plain {
    std::uint64_t sequence;
    std::uint32_t skipped;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    waiting_list<std::uint64_t> w;
    std::vector<plain> truth;
    std::uint64_t next = 0;
    for (int n = 0; n < 2000; ++n) {
      if (truth.empty() || random.one_in(2)) {
        // Multiples of 1000, or between two of them.
        const std::uint64_t sequence =
            random.one_in(5) ? random.below(1000 * (next + 1)) : 1000 * ++next;
        w.push({.sequence = sequence, .length = 1}, sequence);
        truth.insert(std::ranges::upper_bound(truth, sequence, {}, &plain::sequence),
                     plain{sequence, 0});
      } else {
        const std::size_t i = random.below(truth.size());
        const bool taken = random.one_in(2);
        const std::uint64_t value = taken ? w.take(i) : w.erase(i);
        REQUIRE(value == truth[i].sequence);
        truth.erase(truth.begin() + static_cast<std::ptrdiff_t>(i));
        for (std::size_t k = 0; taken && k < i; ++k) ++truth[k].skipped;
      }
      REQUIRE(w.size() == truth.size());
      REQUIRE(w.empty() == truth.empty());
      for (std::size_t i = 0; i < truth.size(); ++i) {
        REQUIRE(w[i] == truth[i].sequence);
        REQUIRE(w.views()[i].sequence == truth[i].sequence);
        REQUIRE(w.views()[i].skipped == truth[i].skipped);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::kv::waiting_list_test
