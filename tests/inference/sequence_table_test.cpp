// SPDX-License-Identifier: Apache-2.0
#include <inference/sequence_table.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::inference::sequence_table_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

using table = sequence_table<int, std::string>;
using entry = table::entry;

TEST_CASE("requests of a sequence run in turns, and those of others beside them") {
  table t{{}};
  int one = 1;
  int two = 2;
  int other = 3;
  CHECK(t.enter("a", true, one, t0) == entry::runs);
  CHECK(t.enter("a", false, two, t0) == entry::waits);
  CHECK(t.enter("b", true, other, t0) == entry::runs);
  CHECK(t.size() == 2);
  CHECK(t.state("a").empty());
  t.state("a") = "after one";
  table::turn turn = t.leave("a", false, t0 + 1ms);
  CHECK(turn.next == 2);
  CHECK(turn.unknown.empty());
  CHECK(t.state("a") == "after one");
  CHECK_FALSE(t.leave("a", true, t0 + 2ms).next);
  CHECK(t.size() == 1);
  CHECK(t.enter("a", false, one, t0 + 3ms) == entry::unknown);
  CHECK_FALSE(t.leave("b", true, t0 + 3ms).next);
}

TEST_CASE("who starts a sequence again finds a new state") {
  table t{{}};
  int r = 1;
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  t.state("a") = "old";
  CHECK(t.enter("a", true, r, t0) == entry::waits);
  CHECK(t.leave("a", false, t0).next == 1);
  CHECK(t.state("a").empty());
  t.state("a") = "old";
  CHECK_FALSE(t.leave("a", false, t0).next);
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  CHECK(t.state("a").empty());
}

TEST_CASE("those behind the end of a sequence are told, but for who starts it again") {
  table t{{}};
  int r = 1;
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  for (int i = 2; i < 6; ++i) CHECK(t.enter("a", i == 4, i, t0) == entry::waits);
  const table::turn turn = t.leave("a", true, t0);
  CHECK(turn.unknown == std::vector{2, 3});
  CHECK(turn.next == 4);
  CHECK(t.leave("a", false, t0).next == 5);
  CHECK_FALSE(t.leave("a", true, t0).next);
  CHECK(t.size() == 0);
}

TEST_CASE("a sequence is over when nobody has come for a while") {
  table t{{.idle = 10ms, .most = 2}};
  int r = 1;
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  CHECK_FALSE(t.leave("a", false, t0 + 5ms).next);
  CHECK(t.enter("a", false, r, t0 + 14ms) == entry::runs);  // It counts from the last one's end.
  CHECK(t.enter("b", true, r, t0 + 14ms) == entry::runs);
  CHECK(t.enter("c", true, r, t0 + 90ms) == entry::full);  // Both are busy: neither is forgotten.
  CHECK_FALSE(t.leave("a", false, t0 + 100ms).next);
  CHECK(t.enter("c", true, r, t0 + 109ms) == entry::full);
  CHECK(t.enter("c", true, r, t0 + 110ms) == entry::runs);
  CHECK(t.enter("a", false, r, t0 + 110ms) == entry::unknown);
}

/// Each state is the ids of the requests since the start, so that whatever is lost, doubled or out
/// of order shows.
TEST_CASE("random sequences: each request finds what those before it have left") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    sequence_table<int, std::vector<int>> t{{.idle = 20ms, .most = 3}};
    struct request {
      std::string id;
      bool starts, ends;
    };
    std::map<int, request> all;
    std::map<std::string, std::vector<int>> expected;  // The requests in order, by sequence.
    std::map<std::string, int> running;
    int made = 0;
    int ended = 0;
    int refused = 0;
    time_point now = t0;
    const auto begin = [&](int n) { running[all.at(n).id] = n; };
    for (int step = 0; step < 300; ++step) {
      now += duration{std::chrono::milliseconds{random.below(4)}};
      if (random.one_in(2)) {
        int n = ++made;
        const request& r = all[n] = {std::string(1, static_cast<char>('a' + random.below(4))),
                                     random.one_in(3), random.one_in(5)};
        const auto is = t.enter(r.id, r.starts, n, now);
        if (is == decltype(t)::entry::runs) {
          begin(n);
        } else if (is != decltype(t)::entry::waits) {
          ++refused;
        }
      } else if (!running.empty()) {
        auto at = running.begin();
        std::advance(at, random.below(running.size()));
        const auto [id, n] = *at;
        const request& r = all.at(n);
        std::vector<int>& kept = expected[id];
        if (r.starts) kept.clear();
        REQUIRE(t.state(id) == kept);
        kept.push_back(n);
        t.state(id).push_back(n);
        running.erase(at);
        ++ended;
        auto turn = t.leave(id, r.ends, now);
        for (const int u : turn.unknown) {
          REQUIRE_FALSE(all.at(u).starts);
          ++refused;
        }
        if (turn.next) {
          REQUIRE((all.at(*turn.next).starts || !r.ends));
          begin(*turn.next);
        }
      }
      REQUIRE(t.size() <= 3);
    }
    while (!running.empty()) {
      const auto [id, n] = *running.begin();
      running.erase(id);
      ++ended;
      auto turn = t.leave(id, all.at(n).ends, now);
      refused += static_cast<int>(turn.unknown.size());
      if (turn.next) begin(*turn.next);
    }
    CHECK(ended + refused == made);
  }
}

}  // namespace
}  // namespace cohort::inference::sequence_table_test
