// SPDX-License-Identifier: Apache-2.0
#include <formats/decode_files.hpp>

#include <doctest/doctest.h>

#include <formats/text.hpp>

#include <string>
#include <support/complaint.hpp>

namespace cohort::formats::decode_files_test {
namespace {
using namespace std::chrono_literals;

std::string complaint(const std::string& csv) {
  try {
    (void)parse_decode_requests("r.csv", csv);
  } catch (const input_error& e) {
    return test::gist(e.what());
  }
  return "";
}

TEST_CASE("columns come in any order, and two may be missing") {
  const decode_requests r = parse_decode_requests(
      "f", "priority,output_tokens,extra,id,prompt_tokens,arrival_ms\n3,6,x,a,2,1.5\n");
  REQUIRE(r.requests.size() == 1);
  CHECK(r.ids[0] == "a");
  CHECK(r.requests[0].prompt == 2);
  CHECK(r.requests[0].output == 6);
  CHECK(r.requests[0].priority == 3);
  CHECK(r.requests[0].arrival == time_point{} + 1500us);
  const decode_requests plain =
      parse_decode_requests("f", "id,prompt_tokens,output_tokens\nb,1,1\n");
  CHECK(plain.requests[0].arrival == time_point{});
}

TEST_CASE("what is wrong is named with its place") {
  const std::string head = "id,prompt_tokens,output_tokens,arrival_ms,priority\n";
  CHECK(complaint(head + "a,0,1,0,0\n") == "r.csv: line 2, prompt_tokens: bad value");
  CHECK(complaint(head + "a,1,1.5,0,0\n").starts_with("r.csv: line 2, output_tokens: bad value"));
  CHECK(complaint(head + "a,1,-1,0,0\n").starts_with("r.csv: line 2, output_tokens: bad value"));
  CHECK(complaint(head + "a,1,1,nan,0\n").starts_with("r.csv: line 2, arrival_ms: bad value"));
  CHECK(complaint(head + "a,1,1,-1,0\n").starts_with("r.csv: line 2, arrival_ms: bad value"));
  CHECK(complaint(head + "a,1,1,0,256\n").starts_with("r.csv: line 2, priority: bad value"));
  CHECK(complaint(head + ",1,1,0,0\n") == "r.csv: line 2, id: bad value");
  CHECK(complaint(head + "a,1,1,0,0\na,1,1,0,0\n") == "r.csv: line 3, id: bad value");
  CHECK(complaint(head) == "r.csv: missing");
  CHECK(complaint("id,prompt_tokens\na,1\n") == "r.csv: line 1, output_tokens: missing");
  std::string many = head;
  for (int i = 0; i < 1001; ++i) many += std::to_string(i) + ",1,1000000,0,0\n";
  CHECK(complaint(many).starts_with("r.csv: line 1002, output_tokens: bad value"));
}

TEST_CASE("costs default one by one, and may not all be 0") {
  const sim::decode_cost c = parse_decode_cost("f", R"({"per_token_ms": 0.5})");
  CHECK(c.iteration_ms == 1);
  CHECK(c.per_token_ms == 0.5);
  CHECK(c.per_column_ms == 0);
  CHECK_THROWS_AS((void)parse_decode_cost("f", R"({"iteration_ms": 0})"), input_error);
  CHECK_THROWS_AS((void)parse_decode_cost("f", R"({"iteration_ms": -1})"), input_error);
  CHECK_THROWS_AS((void)parse_decode_cost("f", R"({"iteration": 1})"), input_error);
  CHECK_THROWS_AS((void)parse_decode_cost("f", R"([1])"), input_error);
}

}  // namespace
}  // namespace cohort::formats::decode_files_test
