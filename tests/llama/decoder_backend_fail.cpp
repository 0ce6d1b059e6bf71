// expect: [^a-z_]start_prefill\(
// SPDX-License-Identifier: Apache-2.0
#include "../../src/llama/decoder_backend.hpp"

// Complete, but that it computes prompts only whole.
struct whole_prompts {
  [[nodiscard]] const cohort::llama::llama_config& config() const { return c; }
  [[nodiscard]] std::uint64_t column_bytes() const { return 1; }
  std::uint64_t allocate(std::uint32_t);
  std::uint32_t packed_columns(std::uint64_t);
  void release(std::uint64_t);
  void discard(std::uint64_t);
  void execute(const cohort::kv::copy_plan&);
  void start_prefill(std::span<const std::span<const cohort::kv::token_id>>);
  cohort::llama::prefill_state prefill();
  void wait_for_prefill();
  cohort::llama::row_result first(std::uint32_t);
  void end_prefill();
  bool iterate(const cohort::kv::decode_batch&, bool);
  cohort::llama::row_result of_slot(std::uint32_t);
  [[nodiscard]] std::string_view error(cohort::llama::device_work) const { return {}; }
  cohort::llama::llama_config c;
};
#ifndef COHORT_WELL_FORMED
static_assert(cohort::llama::decoder_backend<whole_prompts>);
#endif
