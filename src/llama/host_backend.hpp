// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Llama on the host as `basic_generator` uses a decoder: two streams, keys and values.
#pragma once

#include <cohort/kv/batch/kv_memory.hpp>
#include <cohort/runtime/host.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "decoder_backend.hpp"
#include "generation.hpp"
#include "llama.hpp"

namespace cohort::llama {

/// Prompts are computed on a stream of their own, `prefill_chunk` rows at a time whatever pieces
/// they belong to; it does not choose. A row's results are the same bits whatever is beside it.
/// Thread safety: one thread.
class host_backend {
 public:
  /// @param model Must outlive it.  @param o Its columns, bytes and prefill_chunk are used.
  /// @throws config_error If an option is outside its range.
  host_backend(const llama& model, const generator_options& o);
  ~host_backend();
  host_backend(const host_backend&) = delete;
  host_backend& operator=(const host_backend&) = delete;

  [[nodiscard]] const llama_config& config() const noexcept { return model_.config(); }
  [[nodiscard]] std::uint64_t column_bytes() const noexcept {
    return memory_.shape().column_bytes();
  }

  [[nodiscard]] std::uint64_t allocate(std::uint32_t columns) { return memory_.allocate(columns); }
  [[nodiscard]] std::uint32_t packed_columns(std::uint64_t storage) const noexcept {
    return memory_.packed_columns(storage);
  }
  void release(std::uint64_t storage) { memory_.release(decode_, storage); }
  void discard(std::uint64_t storage) { memory_.release(prefill_, storage); }
  void execute(const kv::copy_plan& plan) { memory_.execute(decode_, plan); }

  void start_prefill(std::span<const prefill_piece> pieces);
  [[nodiscard]] prefill_state prefill() const noexcept { return job_.look(); }
  void wait_for_prefill() const noexcept { job_.wait(); }
  [[nodiscard]] row_result first(std::uint32_t i) const noexcept { return result(job_logits_, i); }
  void end_prefill() noexcept { job_.state.store(prefill_state::idle, std::memory_order_relaxed); }

  [[nodiscard]] bool iterate(const kv::decode_batch& batch, bool logits);
  [[nodiscard]] row_result of_slot(std::uint32_t slot) const noexcept {
    return result(logits_, slot);
  }
  [[nodiscard]] int thread_of(device_work what) const noexcept {
    return (what == device_work::iteration ? decode_ : prefill_).thread_id();
  }
  [[nodiscard]] std::string_view error(device_work what) const noexcept {
    return (what == device_work::iteration ? iteration_ : job_).error();
  }

 private:
  [[nodiscard]] row_result result(std::span<const float> logits, std::size_t i) const noexcept {
    const std::size_t vocabulary = config().vocabulary;
    return {.best = {}, .logits = logits.subspan(i * vocabulary, vocabulary)};
  }
  [[nodiscard]] kv_ref packed(std::uint64_t storage) const noexcept;

  const llama& model_;
  std::uint32_t chunk_;
  runtime::host_executor executor_;
  runtime::host_executor::stream decode_;
  runtime::host_executor::stream prefill_;
  kv::kv_memory<runtime::host_executor> memory_;
  // Of prefill. Rows point into runs and logits.
  decoder_job job_;
  std::vector<token_row> job_rows_;
  std::vector<kv::column_run> job_runs_;
  std::vector<float> job_logits_;
  llama::scratch job_scratch_;
  // Of an iteration.
  decoder_job iteration_;
  std::vector<token_row> rows_;
  std::vector<kv::column_run> runs_;
  std::vector<float> logits_;
  llama::scratch scratch_;
};
static_assert(decoder_backend<host_backend>);

}  // namespace cohort::llama
