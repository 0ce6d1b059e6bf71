// SPDX-License-Identifier: Apache-2.0
#include <formats/prompt_trace.hpp>

#include <doctest/doctest.h>

#include <formats/text.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <support/complaint.hpp>

namespace cohort::formats::prompt_trace_test {
namespace {
using namespace std::chrono_literals;

test::gist complaint(const std::string& text) {
  return test::gist_of<input_error>([&] { (void)parse_prompt_trace("t", text); });
}

TEST_CASE("Azure's traces are read by their public columns") {
  const prompt_trace t =
      parse_prompt_trace("t",
                         "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                         "2023-11-30 23:59:59.5000000,374,44\n2023-12-01 00:00:01,396,0\n");
  REQUIRE(t.requests.size() == 2);
  CHECK(t.block_tokens == 0);
  CHECK(t.requests[0].arrival == time_point{});
  CHECK(t.requests[0].prompt == 374);
  CHECK(t.requests[0].output == 44);
  CHECK(t.requests[1].arrival == time_point{1500ms});
  CHECK(t.requests[1].output == 1);
}
TEST_CASE("so are plain CSV, and JSON lines with hashes of blocks") {
  const prompt_trace csv =
      parse_prompt_trace("t", "output_tokens,arrival_ms,prompt_tokens\n3,10.5,7\n4,11,8\n");
  CHECK(csv.requests[1].arrival == time_point{500us});
  CHECK(csv.requests[1].prompt == 8);
  const prompt_trace lines = parse_prompt_trace(
      "t",
      "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, "
      "47]}\n\n{\"timestamp\": 30535, \"input_length\": 6472, \"output_length\": 26, \"hash_ids\": "
      "[46]}\n");
  CHECK(lines.block_tokens == 512);
  CHECK(lines.requests[0].blocks == std::vector<std::uint64_t>{46, 47});
  CHECK(lines.requests[1].arrival == time_point{3053ms});
  CHECK(lines.requests[1].prompt == 6472);
}
TEST_CASE("a trace that is not one is refused with its place") {
  CHECK(complaint("") == "t: line 1: missing");
  CHECK(complaint("arrival_ms,prompt_tokens,output_tokens\n") == "t: missing");
  CHECK(complaint("arrival_ms,prompt_tokens\n1,2\n") == "t: line 1, output_tokens: missing");
  CHECK(complaint("arrival_ms,prompt_tokens,output_tokens\n5,1,1\n4,1,1\n") ==
        "t: line 3, arrival_ms: ... 4 ...");
  CHECK(complaint("arrival_ms,prompt_tokens,output_tokens\n5,0,1\n") ==
        "t: line 2, prompt_tokens: ... 0 ...");
  for (const char* time :
       {"2023-11-16", "2023-02-30 00:00:00", "2023-11-16 24:00:00", "2023-11-16 18:15:46,5", "x"}) {
    CAPTURE(time);
    CHECK(complaint("TIMESTAMP,ContextTokens,GeneratedTokens\n\"" + std::string{time} +
                    "\",1,1\n") == "t: line 2, TIMESTAMP: bad value");
  }
  CHECK(complaint("{\"timestamp\": 1, \"input_length\": 1}\n") ==
        "t: line 1: $.output_length: missing");
  CHECK(complaint("{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1.5}\n") ==
        "t: line 1: $.output_length: ... 1.5 ...");
}
TEST_CASE("an endpoint keeps the defaults of what is not said") {
  const sim::text_endpoint_spec s =
      parse_text_endpoint("e", "{\"iteration_ms\": 20, \"slots\": 64, \"chunk_tokens\": 1024}");
  CHECK(s.iteration_ms == 20);
  CHECK(s.slots == 64);
  CHECK(s.chunk == 1024);
  CHECK(s.kv_tokens == sim::text_endpoint_spec{}.kv_tokens);
  const auto refused = [](const char* text) {
    return test::gist_of<input_error>([&] { (void)parse_text_endpoint("e", text); });
  };
  CHECK(refused("{\"slots\": 0}") == "e: $.slots: ... 0 ...");
  CHECK(refused("{\"iteration_ms\": 0}") == "e: $.iteration_ms: ... 0 ...");
  CHECK(refused("{\"speed\": 1}") == "e: $.speed: unknown field");
}

}  // namespace
}  // namespace cohort::formats::prompt_trace_test
