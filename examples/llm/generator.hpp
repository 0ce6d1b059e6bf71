// SPDX-License-Identifier: Apache-2.0
/// @file
/// Generates text for many requests at once: the decode scheduler over a Llama on the host.
#pragma once

#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/decode_scheduler.hpp>
#include <cohort/kv/kv_memory.hpp>
#include <cohort/runtime/host.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "llama.hpp"
#include "sampler.hpp"

namespace cohort::llm {

/// One request. The caller fills the first part and keeps the object alive until `finished`.
struct generation : kv::sequence {
  std::vector<kv::token_id> text;  ///< The prompt; at least one token, all of the vocabulary.
  sampling how{};
  std::vector<kv::token_id> stop_tokens;  ///< Produced, they end the text and are not part of it.
  /// Called with each token that is part of the text, on the loop's thread. Returns whether the
  /// text ends here (a stop string). May be empty.
  std::function<bool(generation&, const sampled&)> on_token;

  /// Written by the generator.
  std::vector<kv::token_id> produced;  ///< Stop tokens included.
  std::vector<time_point> times;       ///< When each came.
  std::optional<kv::finish_reason> finished;
};

struct generator_options {
  std::uint32_t slots = 8;                                  ///< Rows of the decode batch.
  std::uint32_t columns = 64;                               ///< First capacity; a power of two.
  std::uint64_t kv_bytes = std::uint64_t{512} << 20U;       ///< Of the batch's keys and values.
  std::uint64_t staging_bytes = std::uint64_t{512} << 20U;  ///< Of packed ones, at most.
  std::uint32_t max_queued = 4096;
  std::uint32_t max_prepared = 16;
  std::uint32_t prefill_chunk = 64;  ///< Token rows that one piece of prefill computes; at least 1.
  kv::prefill_limits prefill{.max_rows = 8, .max_waste = 0.25, .max_positions = 512};
};

/// The loop of an LLM server without its network. Prefill and decode run on streams of their own;
/// an iteration never waits for a prompt. Thread safety: none; one thread owns it.
class generator {
 public:
  /// @param model Must outlive it.  @throws config_error If an option is outside its range.
  generator(const llama& model, const generator_options& o);
  ~generator();
  generator(const generator&) = delete;
  generator& operator=(const generator&) = delete;

  /// Accepts a request, or says why not.
  /// @throws config_error If its sampling or a token is out of range.
  std::optional<refusal> submit(generation& g);
  void cancel(generation& g);

  /// One iteration at most; waits for a prefill if there is nothing else to do.
  /// @param clock Tells the time of each token.
  /// @returns Whether anything is left to do.
  bool turn(const std::function<time_point()>& clock);

  using scheduler = kv::decode_scheduler<kv::best_fit>;
  [[nodiscard]] const scheduler& state() const noexcept { return scheduler_; }

 private:
  struct sink;
  /// A group under prefill.
  struct prefill_job : runtime::completion {
    std::vector<generation*> members;
    std::vector<std::uint64_t> storage;
    std::vector<token_row> rows;
    std::vector<kv::column_run> runs;
    std::vector<float> logits;
    llama::scratch scratch;
    std::atomic<int> state{0};  // 0 none, 1 under way, 2 done, 3 failed.
  };
  struct iteration_job : runtime::completion {
    std::atomic<int> state{0};
  };

  void start_prefill();
  void end_prefill(const std::function<time_point()>& clock);
  bool accept(generation& g, std::span<const float> logits, time_point now, kv::token_id& token);

  const llama& model_;
  generator_options o_;
  runtime::host_executor executor_;
  runtime::host_executor::stream decode_;
  runtime::host_executor::stream prefill_;
  kv::kv_memory<runtime::host_executor> memory_;
  scheduler scheduler_;
  sampler sampler_;
  prefill_job job_;
  iteration_job iteration_;
  std::vector<token_row> rows_;
  std::vector<kv::column_run> runs_;
  std::vector<float> logits_;
  llama::scratch scratch_;
};

}  // namespace cohort::llm
