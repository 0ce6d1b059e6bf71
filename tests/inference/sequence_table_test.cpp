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
  const table::turn turn = t.leave("a", true, false, t0 + 1ms);
  CHECK(turn.request == 2);
  CHECK(turn.runs);
  CHECK(t.state("a") == "after one");
  CHECK_FALSE(t.leave("a", true, true, t0 + 2ms).request);
  CHECK(t.size() == 1);
  CHECK(t.enter("a", false, one, t0 + 3ms) == entry::unknown);
  CHECK_FALSE(t.leave("b", true, true, t0 + 3ms).request);
}

TEST_CASE("only who was computed begins a sequence, or ends it") {
  table t{{}};
  int r = 1;
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  CHECK_FALSE(t.leave("a", false, false, t0).request);  // It failed: nothing has begun.
  CHECK(t.size() == 0);
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  t.state("a") = "kept";
  CHECK_FALSE(t.leave("a", true, false, t0).request);
  CHECK(t.enter("a", false, r, t0) == entry::runs);
  CHECK_FALSE(t.leave("a", false, true, t0).request);  // It was to end it, and failed.
  CHECK(t.enter("a", false, r, t0) == entry::runs);
  CHECK(t.state("a") == "kept");
  CHECK_FALSE(t.leave("a", true, true, t0).request);
  CHECK(t.size() == 0);
}

TEST_CASE("those behind the end of a sequence are told, but for who starts it again") {
  table t{{}};
  int r = 1;
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  t.state("a") = "old";
  for (int i = 2; i < 6; ++i) CHECK(t.enter("a", i == 4, i, t0) == entry::waits);
  table::turn turn = t.leave("a", true, true, t0);
  for (const int unknown : {2, 3}) {
    CHECK(turn.request == unknown);
    CHECK_FALSE(turn.runs);
    turn = t.next("a", t0);
  }
  CHECK(turn.request == 4);
  CHECK(turn.runs);
  CHECK(t.state("a").empty());
  turn = t.leave("a", true, false, t0);
  CHECK(turn.request == 5);
  CHECK(turn.runs);
  CHECK_FALSE(t.leave("a", true, true, t0).request);
  CHECK(t.size() == 0);
}

TEST_CASE("a sequence is over when nobody has come for a while") {
  table t{{.idle = 10ms, .most = 2}};
  int r = 1;
  CHECK(t.enter("a", true, r, t0) == entry::runs);
  CHECK_FALSE(t.leave("a", true, false, t0 + 5ms).request);
  CHECK(t.enter("a", false, r, t0 + 14ms) == entry::runs);  // It counts from the last one's end.
  CHECK(t.enter("b", true, r, t0 + 14ms) == entry::runs);
  CHECK(t.enter("c", true, r, t0 + 90ms) == entry::full);  // Both are busy: neither is forgotten.
  CHECK_FALSE(t.leave("a", true, false, t0 + 100ms).request);
  CHECK(t.enter("c", true, r, t0 + 109ms) == entry::full);
  t.forget_idle(t0 + 110ms);
  CHECK(t.size() == 1);
  CHECK(t.enter("c", true, r, t0 + 110ms) == entry::runs);
  CHECK(t.enter("a", false, r, t0 + 110ms) == entry::unknown);
}

TEST_CASE("no more requests wait than may") {
  table t{{.most_waiting = 2}};
  int r = 1;
  for (const char* id : {"a", "b"}) {
    CHECK(t.enter(id, true, r, t0) == entry::runs);
    CHECK(t.enter(id, false, r, t0) == entry::waits);
  }
  CHECK(t.enter("a", false, r, t0) == entry::full);
  CHECK(t.leave("b", true, false, t0).runs);
  CHECK(t.enter("a", false, r, t0) == entry::waits);
  CHECK(t.leave("a", true, false, t0).runs);
  CHECK(t.leave("a", true, false, t0).runs);
  CHECK_FALSE(t.leave("a", true, true, t0).request);
  CHECK_FALSE(t.leave("b", true, true, t0).request);
}

/// Each state is the requests that were computed since the start, so that whatever is lost, doubled
/// or out of order shows.
TEST_CASE("random sequences: each request finds what those before it have left") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    using numbers = sequence_table<int, std::vector<int>>;
    numbers t{{.idle = 20ms, .most = 3, .most_waiting = 5}};
    struct request {
      std::string id;
      bool starts, ends;
    };
    std::map<int, request> all;
    std::map<std::string, std::vector<int>> left;  // By the last computed request.
    std::map<std::string, int> running;
    std::map<std::string, int> last;  // The last that came in turn.
    int made = 0;
    int ended = 0;
    int refused = 0;
    time_point now = t0;
    const auto begin = [&](const std::string& id, int n) {
      REQUIRE(n > last[id]);
      last[id] = n;
      running[id] = n;
    };
    const auto end_one = [&](bool is_computed) {
      auto at = running.begin();
      std::advance(at, random.below(running.size()));
      const auto [id, n] = *at;
      const request& r = all.at(n);
      running.erase(at);
      ++ended;
      if (!r.starts) REQUIRE(t.state(id) == left[id]);
      if (is_computed) {
        if (r.starts) left[id].clear();
        left[id].push_back(n);
        t.state(id) = left[id];
      }
      numbers::turn turn = t.leave(id, is_computed, r.ends, now);
      for (; turn.request && !turn.runs; turn = t.next(id, now)) {
        REQUIRE_FALSE(all.at(*turn.request).starts);
        last[id] = *turn.request;
        ++refused;
      }
      if (turn.request) begin(id, *turn.request);
    };
    for (int step = 0; step < 300; ++step) {
      now += duration{std::chrono::milliseconds{random.below(4)}};
      if (running.empty() || random.one_in(2)) {
        int n = ++made;
        const request& r = all[n] = {std::string(1, static_cast<char>('a' + random.below(4))),
                                     random.one_in(3), random.one_in(5)};
        const numbers::entry is = t.enter(r.id, r.starts, n, now);
        if (is == numbers::entry::runs) begin(r.id, n);
        if (is == numbers::entry::unknown || is == numbers::entry::full) ++refused;
      } else {
        end_one(!random.one_in(4));
      }
      REQUIRE(t.size() <= 3);
    }
    while (!running.empty()) end_one(true);
    CHECK(ended + refused == made);
  }
}

}  // namespace
}  // namespace cohort::inference::sequence_table_test
