// SPDX-License-Identifier: Apache-2.0
#include <llama/compare.hpp>

#include <cohort/core/error.hpp>
#include <cohort/sim/llm/method_simulation.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::llama::compare_test {
namespace {
using sim::decode_method;

constexpr decode_method methods[] = {decode_method::run_to_completion, decode_method::pd,
                                     decode_method::shaping, decode_method::orca,
                                     decode_method::baton};

llama tiny(std::uint64_t seed, std::size_t positions = 128) {
  llama_config c = named_config("tiny");
  c.layers = 1;
  c.max_positions = positions;
  return llama{random_weights(c, seed)};
}

TEST_CASE("all methods say the same, and iterate as often as in virtual time") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const llama model = tiny(seed);
    std::vector<timed_request> requests(3 + random.below(10U));
    std::vector<sim::decode_request> counted;
    for (timed_request& r : requests) {
      r.prompt.resize(1 + random.below(40U));
      for (kv::token_id& t : r.prompt) t = static_cast<kv::token_id>(random.below(259));
      r.output = 1 + random.below(24U);
      counted.push_back({static_cast<std::uint32_t>(r.prompt.size()), r.output});
    }
    const std::uint32_t slots = 1 + random.below(5U);
    std::vector<std::vector<kv::token_id>> truth;
    for (const decode_method m : methods) {
      CAPTURE(std::string{to_string(m)});
      for (const bool own : {false, true}) {
        const compare_result r =
            compare(model, requests,
                    {.method = m, .slots = slots, .own_prefill_stream = own, .prefill_chunk = 7});
        for (std::size_t i = 0; i < requests.size(); ++i) {
          REQUIRE(r.tokens[i].size() == requests[i].output);
        }
        if (truth.empty()) truth = r.tokens;
        REQUIRE(r.tokens == truth);
        const bool decoupled = m == decode_method::pd || m == decode_method::baton;
        if (!decoupled || (m == decode_method::pd && !own)) {
          const sim::decode_options o{.method = m, .batch = slots};
          REQUIRE(r.iterations == sim::method_simulation{counted, o}.run().iterations);
        }
      }
    }
    // The positions of the longest are enough.
    const llama bounded = tiny(seed, positions_of(requests));
    REQUIRE(compare(bounded, requests, {.slots = slots}).tokens == truth);
  }
}

TEST_CASE("requests that arrive later are served") {
  const llama model = tiny(1);
  std::vector<timed_request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back({{1, 2, 3}, 4, 0.004 * i});
  for (const decode_method m : methods) {
    const compare_result r =
        compare(model, requests, {.method = m, .slots = 2, .own_prefill_stream = true});
    CHECK(r.seconds >= 0.02);
    for (const double ms : r.first_token_ms) CHECK(ms > 0);
    CHECK(r.between_tokens_ms.size() == 6 * 3);
  }
}

TEST_CASE("the paper's sets have its proportions") {
  const std::vector<timed_request> one = paper_requests(1, 0.1, named_config("tiny"), 1);
  REQUIRE(one.size() == 120);
  const auto long_prompts =
      std::ranges::count_if(one, [](const auto& r) { return r.prompt.size() >= 360; });
  const auto long_outputs =
      std::ranges::count_if(one, [](const auto& r) { return r.output >= 360; });
  CHECK(long_prompts == 30);
  CHECK(long_outputs == 30);
  const std::vector<timed_request> two = paper_requests(2, 1, named_config("tiny"), 1);
  REQUIRE(two.size() == 30);
  for (const timed_request& r : two) {
    CHECK(r.prompt.size() >= 24);
    CHECK(r.prompt.size() <= 200);
  }
}

TEST_CASE("positions are those of the longest request") {
  CHECK(positions_of({}) == 0);
  CHECK(positions_of({{{1, 2, 3}, 4}, {{1}, 9}, {{1, 2}, 2}}) == 12);
}

TEST_CASE("requests beyond the model are refused") {
  const llama model = tiny(1);
  CHECK_THROWS_AS((void)compare(model, {}, {}), config_error);
  CHECK_THROWS_AS((void)compare(model, {{{}, 1}}, {}), config_error);
  CHECK_THROWS_AS((void)compare(model, {{{1, 2}, 127}}, {}), config_error);
  CHECK_THROWS_AS((void)compare(model, {{{1}, 1}}, {.prefill_chunk = 0}), config_error);
}

}  // namespace
}  // namespace cohort::llama::compare_test
