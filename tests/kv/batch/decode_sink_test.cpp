// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/decode_sink.hpp>

#include <doctest/doctest.h>

#include <cohort/kv/decode_scheduler.hpp>

#include <cstdint>
#include <optional>

namespace cohort::kv::decode_sink_test {
namespace {

struct least_finish_sink {
  std::optional<finish_reason> how;
  void finish(sequence&, finish_reason why) { how = why; }
};
struct least_storage_sink {
  std::uint64_t released = 0;
  void execute(const copy_plan&) {}
  std::uint64_t allocate(sequence&, std::uint32_t) { return 0; }
  void release(std::uint64_t storage) { released = storage; }
};
struct least_sink : least_finish_sink, least_storage_sink {};
static_assert(finish_sink<least_finish_sink> && !decode_sink<least_finish_sink>);
static_assert(storage_sink<least_storage_sink> && !decode_sink<least_storage_sink>);
static_assert(decode_sink<least_sink>);

TEST_CASE("a prompt that fails needs a sink for final events alone") {
  decode_scheduler<> scheduler{{.batch = {.slots = 1, .columns = 8}}};
  sequence s;
  s.prompt = 2;
  s.max_new = 2;
  REQUIRE_FALSE(scheduler.submit(s));
  REQUIRE(scheduler.next_prefill().size() == 1);
  least_finish_sink sink;
  scheduler.on_prefill_failed(s, sink);
  CHECK(sink.how == finish_reason::error);
}
TEST_CASE("the least sink sees a sequence through to its final event") {
  decode_scheduler<> scheduler{{.batch = {.slots = 1, .columns = 8}}};
  sequence s;
  s.prompt = 2;
  s.max_new = 2;
  REQUIRE_FALSE(scheduler.submit(s));
  REQUIRE(scheduler.next_prefill().size() == 1);
  least_sink sink;
  scheduler.on_prefilled(s, 7, token_id{1}, false, sink);
  REQUIRE(scheduler.begin({}, sink));
  CHECK(sink.released == 7);
  scheduler.on_token(0, token_id{2}, false, sink);
  CHECK(sink.how == finish_reason::length);
}

}  // namespace
}  // namespace cohort::kv::decode_sink_test
