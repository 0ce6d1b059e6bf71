// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/chunked_prefill.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <map>

#include <support/random_source.hpp>

namespace cohort::kv::chunked_prefill_test {
namespace {

prefill_chunk take(chunked_prefill& c) {
  const auto chunk = c.next();
  REQUIRE(chunk.has_value());
  CHECK(c.next() == chunk);
  c.complete();
  return *chunk;
}

TEST_CASE("a prompt comes in pieces, the last one short") {
  chunked_prefill c{4};
  c.push(request_id{1}, 10);
  CHECK(take(c) == prefill_chunk{request_id{1}, 0, 4, false});
  CHECK(take(c) == prefill_chunk{request_id{1}, 4, 4, false});
  CHECK(take(c) == prefill_chunk{request_id{1}, 8, 2, true});
  CHECK(c.empty());
  CHECK_FALSE(c.next().has_value());
}

TEST_CASE("first come, first served; or in turn, so that short ones overtake") {
  chunked_prefill first{4};
  chunked_prefill turn{4, chunk_order::equal_progress};
  for (chunked_prefill* c : {&first, &turn}) {
    c->push(request_id{1}, 9);
    c->push(request_id{2}, 3);
  }
  take(first);
  CHECK(first.next()->id == request_id{1});
  take(turn);
  CHECK(take(turn) == prefill_chunk{request_id{2}, 0, 3, true});
  CHECK(turn.size() == 1);
  CHECK(take(turn).first == 4);
}

TEST_CASE("by deadline: the first due goes on until one comes that is due before it") {
  const auto at = [](std::int64_t ms) { return time_point{std::chrono::milliseconds{ms}}; };
  chunked_prefill c{4, chunk_order::earliest_deadline};
  c.push(request_id{1}, 9, 0, at(50));
  c.push(request_id{2}, 3);  // Never.
  c.push(request_id{3}, 5, 0, at(60));
  c.push(request_id{4}, 5, 0, at(50));
  CHECK(take(c) == prefill_chunk{request_id{1}, 0, 4, false});
  c.push(request_id{5}, 6, 0, at(40));
  CHECK(take(c) == prefill_chunk{request_id{5}, 0, 4, false});
  CHECK(take(c) == prefill_chunk{request_id{5}, 4, 2, true});
  CHECK(take(c) == prefill_chunk{request_id{1}, 4, 4, false});
  CHECK(take(c) == prefill_chunk{request_id{1}, 8, 1, true});
  CHECK(take(c).id == request_id{4});  // Equal ones as they came.
  CHECK(take(c) == prefill_chunk{request_id{4}, 4, 1, true});
  CHECK(take(c).id == request_id{3});
  CHECK(c.cancel(request_id{3}));
  CHECK(take(c) == prefill_chunk{request_id{2}, 0, 3, true});
  CHECK(c.empty());
}

TEST_CASE("a cached prefix is not computed again, and a cancelled prompt not at all") {
  chunked_prefill c{4};
  c.push(request_id{1}, 10, 8);
  CHECK(*c.next() == prefill_chunk{request_id{1}, 8, 2, true});
  c.push(request_id{2}, 1);
  CHECK(c.cancel(request_id{1}));
  CHECK_FALSE(c.cancel(request_id{1}));
  CHECK(*c.next() == prefill_chunk{request_id{2}, 0, 1, true});
  CHECK_THROWS_AS(c.push(request_id{3}, 5, 5), config_error);
  CHECK_THROWS_AS(c.push(request_id{3}, 0), config_error);
  CHECK_THROWS_AS(chunked_prefill{0}, config_error);
}

TEST_CASE("every token of every prompt is computed once, in order") {
  for (const chunk_order order :
       {chunk_order::first_come, chunk_order::equal_progress, chunk_order::earliest_deadline}) {
    test::random_source random{3};
    chunked_prefill c{1 + random.below(9U), order};
    std::map<std::uint64_t, std::uint32_t> done;
    std::map<std::uint64_t, std::uint32_t> tokens;
    std::uint64_t ended = 0;
    for (std::uint64_t n = 1; n <= 5000; ++n) {
      if (random.one_in(4)) {
        tokens[n] = 1 + random.below(40U);
        c.push(request_id{n}, tokens[n], 0,
               time_point{std::chrono::milliseconds{random.below(100)}});
      } else if (const auto chunk = c.next()) {
        REQUIRE(chunk->first == done[chunk->id.value()]);
        REQUIRE(chunk->count >= 1);
        done[chunk->id.value()] += chunk->count;
        REQUIRE(chunk->is_last == (done[chunk->id.value()] == tokens[chunk->id.value()]));
        ended += chunk->is_last ? 1U : 0U;
        c.complete();
      }
    }
    CHECK(ended > 100);
    CHECK(ended + c.size() == tokens.size());
  }
}

}  // namespace
}  // namespace cohort::kv::chunked_prefill_test
