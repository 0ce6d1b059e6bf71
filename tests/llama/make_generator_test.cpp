// SPDX-License-Identifier: Apache-2.0
#include <llama/make_generator.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <llama/generator.hpp>

namespace cohort::llama::make_generator_test {
namespace {

time_point no_time() { return {}; }

std::vector<kv::token_id> tokens_of(text_generator& g) {
  generation asked;
  asked.text = {72, 101, 108, 108, 111};
  asked.max_new = 40;
  REQUIRE_FALSE(g.submit(asked).has_value());
  while (g.turn(no_time)) {
  }
  return asked.produced;
}

TEST_CASE("positions are those of the texts that fit, however many the model claims") {
  llama_config c = named_config("tiny");
  const generator_options o{.slots = 2, .kv_bytes = 300 * c.column_bytes()};
  const llama plain{random_weights(c, 5)};
  generator expected{plain, o};
  // A table for all of these would take 64 TiB.
  c.max_positions = std::size_t{1} << 40U;
  const auto g = make_generator(random_weights(c, 5), o, on_host({}));
  const std::vector<kv::token_id> tokens = tokens_of(*g);
  CHECK(tokens.size() == 40);
  CHECK(tokens == tokens_of(expected));
  // The same texts fit.
  for (std::uint32_t prompt : {1U, 100U, 200U, 255U, 256U, 299U, 300U, 301U, 2000U}) {
    for (std::uint32_t more : {1U, 50U, 100U, 300U, 4000U}) {
      CAPTURE(prompt);
      CAPTURE(more);
      generation a;
      generation b;
      for (generation* x : {&a, &b}) {
        x->text.resize(prompt, 65);
        x->max_new = more;
      }
      CHECK(g->submit(a) == expected.submit(b));
      g->cancel(a);
      expected.cancel(b);
    }
  }
}

TEST_CASE("a served config has the positions that its keys and values leave room for") {
  llama_config c = named_config("tiny");
  c.max_positions = 1000;
  const std::uint64_t column = c.column_bytes();
  CHECK(served_config(c, 100 * column, 4).max_positions == 101);
  CHECK(served_config(c, 100 * column, 2).max_positions == 201);
  CHECK(served_config(c, 999 * column, 4).max_positions == 1000);
  CHECK(served_config(c, 5000 * column, 4).max_positions == 1000);
  CHECK(served_config(c, 0, 4).max_positions == 2);
  c.max_positions = std::size_t{1} << 40U;
  CHECK(served_config(c, ~std::uint64_t{0}, 4).max_positions == (std::size_t{1} << 31U) + 1);
}

}  // namespace
}  // namespace cohort::llama::make_generator_test
