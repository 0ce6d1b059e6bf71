// SPDX-License-Identifier: Apache-2.0
#include <chat/memory.hpp>

#include <cohort/kv/batch/budget.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <llama/basic_generator.hpp>

#include <llama/scripted_backend.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::chat::memory_test {
namespace {

struct shape {
  std::size_t layers;
  std::size_t kv_heads;
  std::size_t positions;
};
constexpr shape llama2_7b{32, 32, 4096};
constexpr shape llama31_8b{32, 8, 131072};
constexpr shape llama32_1b{16, 8, 131072};

llama::llama_config config_of(const shape& s) {
  llama::llama_config c;
  c.layers = s.layers;
  c.kv_heads = s.kv_heads;
  c.head_size = s.layers == 16 ? 64 : 128;
  c.max_positions = s.positions;
  return c;
}

context_limit sized(const shape& s, const memory_options& chosen, std::uint64_t elements = 1) {
  const llama::llama_config c = config_of(s);
  llama::generator_options o;
  size_memory(o, chosen, c, c.column_bytes() / elements);
  return longest_text(c, o, c.column_bytes() / elements);
}

TEST_CASE("by default a Llama has its context or a usual one, and it is said how to have more") {
  for (const shape& s : {llama2_7b, llama31_8b, llama32_1b}) {
    CAPTURE(s.positions);
    for (const std::uint64_t elements : {1U, 2U}) {  // f32 and bf16.
      const context_limit l = sized(s, {}, elements);
      CHECK(l.tokens >= std::min<std::size_t>(s.positions, usual_context));
      if (l.tokens == s.positions) continue;
      CHECK(l.option == "--kv-mib");
      // It is enough, and no more than needed.
      CHECK(sized(s, {.kv_mib = l.wanted_mib}, elements).tokens == s.positions);
      CHECK(sized(s, {.kv_mib = l.wanted_mib - 1}, elements).tokens < s.positions);
    }
  }
  CHECK(to_string(sized(llama2_7b, {})) == "context 4096");
  CHECK(test::gist(to_string(sized(llama31_8b, {}))) ==
        "context 4096 of ... 131072 (--kv-mib 49152 ...");
}

TEST_CASE("what the user chose limits the context, and is named") {
  const context_limit kv = sized(llama31_8b, {.kv_mib = 512});
  CHECK(kv.tokens == 1024);  // Of 2048 columns: a ring that grows is there twice.
  CHECK(kv.option == "--kv-mib");
  const context_limit staging = sized(llama2_7b, {.staging_mib = 1000});
  CHECK(staging.tokens == 250);
  CHECK(staging.option == "--staging-mib");
  CHECK(staging.wanted_mib == 4 * 4096);
  CHECK(sized(llama2_7b, {.staging_mib = 4 * 4096}).tokens == 4096);
  CHECK(sized(llama2_7b, {.kv_mib = 1, .staging_mib = 1}).tokens == 0);
}

TEST_CASE("the generator accepts exactly the texts that the context allows") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const llama::generator_options o{.slots = 2,
                                     .columns = 1U << random.below(6U),
                                     .kv_bytes = 8 * (100 + random.below(3000U)),
                                     .staging_bytes = 8 * (100 + random.below(5000U)),
                                     .prefill = {.max_rows = 1 + random.below(8U)}};
    llama::scripted_backend backend{o, 2 + random.below(1000U)};
    const context_limit l = longest_text(backend.config(), o, backend.column_bytes());
    REQUIRE(l.tokens >= 2);
    for (const std::uint32_t more : {0U, 1U}) {
      if (l.option.empty() && more == 1) continue;
      llama::basic_generator g{backend, o};
      llama::generation q;
      q.text.assign(1 + random.below(l.tokens - 1), 1);
      q.max_new = l.tokens + more - static_cast<std::uint32_t>(q.text.size());
      REQUIRE(g.submit(q).has_value() == (more == 1));
      while (g.turn(llama::no_time)) {
      }
      if (more == 0) REQUIRE(q.produced.size() == q.max_new);
    }
  }
}

}  // namespace
}  // namespace cohort::chat::memory_test
