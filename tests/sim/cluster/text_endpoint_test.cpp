// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/cluster/text_endpoint.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::sim::text_endpoint_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// 10 ms an iteration, 1 ms a token of prefill, 2 ms a sequence that decodes.
const text_endpoint_spec plain{.iteration_ms = 10,
                               .prefill_ms_per_token = 1,
                               .sequence_ms = 2,
                               .kv_ms_per_thousand = 0,
                               .chunk = 8,
                               .slots = 2,
                               .kv_tokens = 100,
                               .block_tokens = 4};

/// Each iteration with its end and events: "18:0f" says that request 0 has its first token at
/// 18 ms, "e" that it ends.
std::string played(text_endpoint& e) {
  std::string out;
  time_point now = t0;
  for (time_point end; (end = e.start(now)) != never; now = end) {
    std::vector<text_endpoint::event> events;
    e.finish(events);
    out += (out.empty() ? "" : " ") + std::to_string(static_cast<int>(to_ms(end))) + ":";
    for (const auto& x : events) out += std::to_string(x.request) + (x.is_end ? "e" : "f");
  }
  return out;
}

TEST_CASE("prefill goes in chunks, then each iteration gives a token") {
  text_endpoint e{plain};
  const text_request r{.prompt = 12, .output = 3};
  e.add(0, r);
  // 10 + 8, 10 + 4, then 10 + 2 twice.
  CHECK(played(e) == "18: 32:0f 44: 56:0e");
  CHECK(e.generated() == 3);
  CHECK(e.busy_ms() == 56);
}
TEST_CASE("sequences share iterations, and wait for slots and memory") {
  text_endpoint e{plain};
  const text_request r{.prompt = 4, .output = 2};
  for (std::uint32_t i = 0; i < 3; ++i) e.add(i, r);
  // Two prefill together; both end; the third.
  CHECK(played(e) == "18:0f1f 32:0e1e 46:2f 58:2e");
  text_endpoint small{plain};
  const text_request big{.prompt = 59, .output = 1};
  small.add(0, big);
  small.add(1, big);
  CHECK(small.start(t0) == t0 + 18ms);
  CHECK(small.running() == 1);
  CHECK(small.waiting() == 1);
  CHECK(small.kv_use() == 0.6);
}
TEST_CASE("beginnings that are in memory are not prefilled again") {
  text_endpoint e{plain};
  const text_request a{.prompt = 8, .output = 1, .blocks = {1, 2}};
  const text_request b{.prompt = 9, .output = 1, .blocks = {1, 3}};
  e.add(0, a);
  e.add(1, b);
  e.add(2, a);  // Of all of a prompt its last token is computed.
  // 10 + 8 for a; b's 5 tokens without its first block; 1 of a.
  CHECK(played(e) == "18:0f0e 34:1f1e2f2e");
  CHECK(e.cached() == 4 + 7);
}
TEST_CASE("the blocks used last are kept") {
  block_cache c{2};
  CHECK(c.use({1, 2}) == 0);
  CHECK(c.use({1}) == 1);
  CHECK(c.use({3}) == 0);  // 2 makes room.
  CHECK(c.use({2}) == 0);
  CHECK(c.use({3, 1}) == 1);
}
TEST_CASE("a prompt's last blocks make room first") {
  block_cache c{3};
  CHECK(c.use({1, 2, 3, 4}) == 0);
  CHECK(c.use({1, 2, 3, 4}) == 3);  // All but the last, for which there is no room.
  CHECK(c.use({5, 6}) == 0);
  CHECK(c.use({1, 2}) == 1);
}
TEST_CASE("specs outside their range are refused") {
  CHECK(test::gist_of<config_error>([] { text_endpoint{{.iteration_ms = 0}}; }) ==
        "text_endpoint: iteration_ms ... above 0 ...");
  CHECK(test::gist_of<config_error>([] { text_endpoint{{.slots = 0}}; }) ==
        "text_endpoint: ... slots ... at least 1");
}
TEST_CASE("each request gets its first token once, then its end, and all its tokens") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    text_endpoint e{plain};
    std::vector<text_request> requests(20);
    std::uint64_t tokens = 0;
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = 1 + random.below(30U);
      requests[i].output = 1 + random.below(30U);
      if (random.one_in(2)) requests[i].blocks = {random.below(3U), 3 + random.below(3U)};
      tokens += requests[i].output;
      e.add(i, requests[i]);
    }
    std::vector<int> begun(requests.size());
    std::vector<int> ended(requests.size());
    time_point now = t0;
    for (time_point end; (end = e.start(now)) != never; now = end) {
      CHECK(end >= now + 10ms);
      CHECK(e.running() <= 2);
      CHECK(e.kv_use() <= 1);
      std::vector<text_endpoint::event> events;
      e.finish(events);
      for (const auto& x : events) {
        CHECK(ended[x.request] == 0);
        ++(x.is_end ? ended : begun)[x.request];
        CHECK(begun[x.request] == 1);
      }
    }
    CHECK(ended == std::vector<int>(requests.size(), 1));
    CHECK(e.generated() == tokens);
    CHECK(e.kv_use() == 0);
  }
}

}  // namespace
}  // namespace cohort::sim::text_endpoint_test
