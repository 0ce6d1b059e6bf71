// SPDX-License-Identifier: Apache-2.0
/// @file
/// Generates text for many requests at once: the decode scheduler over a Llama on the host.
#pragma once

#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/chunked_prefill.hpp>
#include <cohort/kv/decode_scheduler.hpp>
#include <cohort/kv/kv_memory.hpp>
#include <cohort/kv/prefix_store.hpp>
#include <cohort/kv/slo_admission.hpp>
#include <cohort/runtime/host.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
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
  std::uint64_t prefix = 0;   ///< Entry of its prompt, from prefill until it is in a slot.
  std::uint64_t staging = 0;  ///< Where its prompt is being prefilled.
  std::uint32_t staged = 0;   ///< Tokens of it that were handed to the prefill stream.
};

/// How long prompts take beside those before them, as measured.
struct measured_prefill {
  struct pace {
    double ns_per_token = 0;
    std::uint64_t backlog = 0;  ///< Tokens of prompts that were taken in and are not yet done.
  };
  const pace* now;  ///< Must outlive it.

  [[nodiscard]] duration operator()(const kv::prefill_shape& s) const noexcept {
    return duration{static_cast<std::int64_t>(now->ns_per_token *
                                              static_cast<double>(s.tokens + now->backlog))};
  }
};

struct generator_options {
  std::uint32_t slots = 8;                                  ///< Rows of the decode batch.
  std::uint32_t columns = 64;                               ///< First capacity; a power of two.
  std::uint64_t kv_bytes = std::uint64_t{512} << 20U;       ///< Of the batch's keys and values.
  std::uint64_t staging_bytes = std::uint64_t{512} << 20U;  ///< Of packed ones, at most.
  std::uint32_t max_queued = 4096;
  std::uint32_t max_prepared = 16;
  std::uint32_t prefill_chunk = 64;  ///< Token rows that one piece of prefill computes; at least 1.
  /// Pieces handed to the prefill stream at once; at least 1. A prompt that comes later waits for
  /// no more than these, however long those before it are.
  std::uint32_t prefill_ahead = 4;
  std::uint32_t max_prefilling = 16;  ///< Prompts that share the prefill stream; at least 1.
  /// Packed prompts that are kept for equal ones to come, on top of staging. 0: equal prompts are
  /// computed once only while one of them is at hand.
  std::uint64_t prefix_bytes = std::uint64_t{64} << 20U;
  /// Longest time from `submit` to the first token. Prompts of which it cannot be kept, by what was
  /// measured, end with `deadline`. `unbounded`: no promise, and none does.
  duration first_token = unbounded;
  /// Longest time between two tokens: prompts are not begun without a slot at that time.
  duration between_tokens = unbounded;
  kv::prefill_limits prefill{.max_rows = 8, .max_waste = 0.25, .max_positions = 512};
};

/// The loop of an LLM server without its network. Prefill and decode run on streams of their own;
/// an iteration never waits for a prompt. Prompts are prefilled in pieces, in turn, so that a short
/// one is not stuck behind a long one; equal prompts are prefilled once. Thread safety: none; one
/// thread owns it.
class generator {
 public:
  /// @param model Must outlive it.  @throws config_error If an option is outside its range.
  generator(const llama& model, const generator_options& o);
  ~generator();
  generator(const generator&) = delete;
  generator& operator=(const generator&) = delete;

  /// Accepts a request, or says why not.
  /// @param now When its first token's time begins to count.
  /// @throws config_error If its sampling or a token is out of range.
  std::optional<refusal> submit(generation& g, time_point now = {});
  void cancel(generation& g);

  /// One iteration at most; waits for a prefill if there is nothing else to do.
  /// @param clock Tells the time of each token.
  /// @returns Whether anything is left to do.
  bool turn(const std::function<time_point()>& clock);

  using scheduler = kv::decode_scheduler<kv::best_fit, kv::slo_admission<measured_prefill>>;
  [[nodiscard]] const scheduler& state() const noexcept { return scheduler_; }
  /// Prompts whose keys and values were there already, or were being computed for another.
  [[nodiscard]] std::uint64_t prefix_hits() const noexcept { return prefix_hits_; }
  /// Tokens of prompts that were computed.
  [[nodiscard]] std::uint64_t prefilled_tokens() const noexcept { return prefilled_tokens_; }

 private:
  struct sink;
  /// Pieces under prefill.
  struct prefill_job : runtime::completion {
    struct end {
      generation* who;  ///< Its prompt is done.
      std::size_t row;
    };
    std::vector<generation*> members;  ///< Of each piece.
    std::vector<end> ends;
    time_point begun{};
    std::vector<token_row> rows;
    std::vector<kv::column_run> runs;
    std::vector<float> logits;
    llama::scratch scratch;
    std::atomic<int> state{0};  // 0 none, 1 under way, 2 done, 3 failed.
  };
  struct iteration_job : runtime::completion {
    std::atomic<int> state{0};
  };

  /// A prompt that is computed once for all that are equal.
  struct shared_prompt {
    std::uint64_t entry;
    std::vector<float> logits;  ///< Of its last token.
  };

  void accept_prompts(time_point now);
  void start_prefill(time_point now);
  void compute(generation& g);
  void use_prefix(generation& g, std::uint64_t storage, time_point now);
  void fail(generation& g);
  void look_at_followers(time_point now);
  void end_prefill(time_point now);
  bool accept(generation& g, std::span<const float> logits, time_point now, kv::token_id& token);

  const llama& model_;
  generator_options o_;
  runtime::host_executor executor_;
  runtime::host_executor::stream decode_;
  runtime::host_executor::stream prefill_;
  kv::kv_memory<runtime::host_executor> memory_;
  measured_prefill::pace prefill_pace_;
  duration iteration_time_{0};  // Of late.
  scheduler scheduler_;
  kv::prefix_store prefixes_;
  kv::chunked_prefill chunks_;
  std::unordered_map<std::uint64_t, shared_prompt> shared_;   // By storage.
  std::unordered_map<std::uint64_t, generation*> computing_;  // By number, as chunks know them.
  std::vector<generation*> followers_;                        // Another computes their prompt.
  std::uint64_t staged_bytes_ = 0;
  std::uint64_t prefix_hits_ = 0;
  std::uint64_t prefilled_tokens_ = 0;
  sampler sampler_;
  prefill_job job_;
  iteration_job iteration_;
  std::vector<token_row> rows_;
  std::vector<kv::column_run> runs_;
  std::vector<float> logits_;
  llama::scratch scratch_;
};

}  // namespace cohort::llm
