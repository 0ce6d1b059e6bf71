// expect: keeps_packed_columns
// SPDX-License-Identifier: Apache-2.0
#include "../../examples/llm/basic_generator.hpp"

struct no_memory {
  [[nodiscard]] const cohort::llm::llama_config& config() const { return c; }
  [[nodiscard]] std::uint64_t column_bytes() const { return 1; }
  cohort::llm::llama_config c;
};
#ifndef COHORT_WELL_FORMED
static_assert(cohort::llm::decoder_backend<no_memory>);
#endif
