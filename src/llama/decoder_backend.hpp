// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the loop of an LLM server asks of a decoder: the concept `decoder_backend`.
#pragma once

#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/prepared.hpp>
#include <cohort/runtime/executor.hpp>

#include <array>
#include <atomic>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "config.hpp"
#include "sampler.hpp"

namespace cohort::llama {

/// What a decoder says of a row.
struct row_result {
  std::optional<scored_token> best;  ///< The most likely token, from backends that choose.
  std::span<const float> logits;     ///< Of the vocabulary; empty if they were not asked for.
};

/// Whether a token can be chosen by it.
[[nodiscard]] inline bool is_sound(const row_result& r) noexcept {
  return (!r.best || std::isfinite(r.best->logprob)) &&
         (r.logits.empty() || is_distribution(r.logits));
}

/// Tokens [first, first + count) of a prompt, to be computed into its packed storage, where those
/// before `first` are already, or will be by a piece before it in the same job.
struct prefill_piece {
  std::span<const kv::token_id> tokens;  ///< Of the whole prompt.
  std::uint64_t storage = 0;             ///< Of as many columns.
  std::uint32_t first = 0;
  std::uint32_t count = 0;  ///< At least 1.
  bool is_last = false;     ///< The prompt ends with it: it has a result.
};

/// All of a prompt.
[[nodiscard]] inline prefill_piece whole_prompt(std::span<const kv::token_id> tokens,
                                                std::uint64_t storage) noexcept {
  return {.tokens = tokens,
          .storage = storage,
          .first = 0,
          .count = static_cast<std::uint32_t>(tokens.size()),
          .is_last = true};
}

/// What a loop has its device do: one at a time of each.
enum class device_work : std::uint8_t {
  iteration,  ///< Of the decode batch.
  prefill,    ///< A job of pieces of prompts, beside iterations.
};

enum class prefill_state : std::uint8_t { idle, busy, done, failed };

/// Work that a backend has its executor tell the end of. One thread may wait for it.
struct decoder_job : runtime::completion {
  decoder_job() {
    invoke = [](runtime::completion& c, bool failed) noexcept {
      auto& self = static_cast<decoder_job&>(c);
      if (failed) self.break_off(c.error == nullptr ? "" : c.error);
      self.end(self.is_broken ? prefill_state::failed : prefill_state::done);
    };
  }
  /// Before the work is asked for.
  void begin() noexcept {
    is_broken = false;
    why[0] = '\0';
    state.store(prefill_state::busy, std::memory_order_relaxed);
  }
  /// It has failed, or not all of it could be asked for: its end will say so.
  void break_off(const char* because) noexcept {
    if (std::exchange(is_broken, true)) return;  // What came first is the cause.
    std::strncpy(why.data(), because, why.size() - 1);
  }
  void end(prefill_state s) noexcept {
    state.store(s, std::memory_order_release);
    state.notify_all();
  }
  [[nodiscard]] prefill_state look() const noexcept {
    return state.load(std::memory_order_acquire);
  }
  /// @returns What became of it.
  prefill_state wait() const noexcept {
    state.wait(prefill_state::busy, std::memory_order_acquire);
    return look();
  }
  /// Why it failed, if it did and anybody knows. After its end.
  [[nodiscard]] std::string_view error() const noexcept { return why.data(); }

  std::atomic<prefill_state> state{prefill_state::idle};
  bool is_broken = false;
  std::array<char, 256> why{};  // The last one stays a zero.
};

/// A decoder with its keys and values. Semantics:
/// * `allocate` gives packed storage, or throws `resource_error`; `release` frees it after the
///   iterations and copies so far, `discard` after the prefill so far. `column_bytes` is what a
///   column takes.
/// * `start_prefill` begins a job of at least one piece, while `prefill` is idle: at most
///   `prefill_chunk` · `prefill_ahead` tokens in all, pieces of a prompt in its order, anything of
///   other prompts between them. The storages stay until the job is done or failed; the pieces and
///   their tokens are not read after the call. `first(i)` is then the result, with logits, of the
///   last token of the i-th prompt that ended in it, until `end_prefill`.
/// * `execute` carries a plan out, in order with the iterations, after the prefill of what enters.
/// * `iterate` computes the live slots of a batch and waits; false if that failed, or copies did
///   since the last one. `of_slot(i)` is the result, until the next: with logits if they were asked
///   for, or if the backend does not choose.
/// * What `start_prefill`, `execute` and `iterate` throw means that the work has failed: that there
///   is no job, or that all slots have lost what they had. Whatever fails, the backend can be asked
///   for more work. `error(what)` says why the latest of a kind failed, or nothing if it does not
///   know; valid until the next. The others throw nothing.
/// * The destructor waits for a job under way.
/// Thread safety: one thread. Models: `host_backend`, `device::device_backend`.
template <class B>
concept decoder_backend =
    requires(const B& b, device_work what) {
      { b.config() } -> std::same_as<const llama_config&>;
      { b.column_bytes() } -> std::convertible_to<std::uint64_t>;
      { b.error(what) } -> std::convertible_to<std::string_view>;
    } && requires(B& b, std::uint32_t columns, std::uint64_t storage, const kv::copy_plan& plan,
                  std::span<const prefill_piece> pieces, std::uint32_t i,
                  const kv::decode_batch& batch, std::uint32_t slot, bool logits) {
      { b.allocate(columns) } -> std::same_as<std::uint64_t>;
      { b.packed_columns(storage) } -> std::same_as<std::uint32_t>;
      b.release(storage);
      b.discard(storage);
      b.execute(plan);
      b.start_prefill(pieces);
      { b.prefill() } -> std::same_as<prefill_state>;
      b.wait_for_prefill();
      { b.first(i) } -> std::same_as<row_result>;
      b.end_prefill();
      { b.iterate(batch, logits) } -> std::same_as<bool>;
      { b.of_slot(slot) } -> std::same_as<row_result>;
    };

}  // namespace cohort::llama
