// SPDX-License-Identifier: Apache-2.0
/// @file
/// Packed columns on a decoder, counted, and what follows prompts that are there already.
#pragma once

#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/prompt/prefix_store.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "decoder_backend.hpp"

namespace cohort::llama {

/// Storage of prompts and of preempted sequences. Equal prompts share theirs: an entry of the
/// prefix store for each distinct one, whose storage stays while somebody may need it again.
/// Thread safety: none.
template <decoder_backend Backend>
class prompt_storage {
 public:
  /// @param kept_bytes Of prompts, those in use included, above which no unused one is kept:
  /// columns, the logits behind each prompt, its tokens.
  prompt_storage(Backend& backend, std::uint64_t kept_bytes)
      : backend_{backend}, prefixes_{kept_bytes} {}
  prompt_storage(const prompt_storage&) = delete;
  prompt_storage& operator=(const prompt_storage&) = delete;

  std::uint64_t allocate(std::uint32_t columns) {
    const std::uint64_t storage = backend_.allocate(columns);
    bytes_ += columns * backend_.column_bytes();
    return storage;
  }
  /// Ends one use: of a prompt's, or all of another.
  void release(std::uint64_t storage) {
    const auto at = first_.find(storage);
    if (at == first_.end()) {
      backend_.release(forget(storage));
    } else {
      leave(at->second.entry);
    }
  }
  /// Of all that is allocated, and of the results that are kept with it.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Whether a prompt need not be computed for its own sake.
  [[nodiscard]] bool knows(std::span<const kv::token_id> prompt) const {
    return prefixes_.knows(prompt);
  }
  /// Begins one use of a prompt's entry. Absent: the caller computes it, for all.
  kv::prefix_hit acquire(std::span<const kv::token_id> prompt) {
    const kv::prefix_hit hit = prefixes_.acquire(prompt);
    if (hit.state != kv::prefix_state::absent) ++hits_;
    return hit;
  }
  [[nodiscard]] kv::prefix_hit look(std::uint64_t entry) { return prefixes_.look(entry); }
  /// Ends one use of an entry; frees those that need not be kept any more.
  void leave(std::uint64_t entry) {
    prefixes_.release(entry, [&](std::uint64_t dropped) {
      const auto at = first_.find(dropped);
      bytes_ -= sizeof(result) + at->second.logits.size() * sizeof(float);
      first_.erase(at);
      backend_.release(forget(dropped));
    });
  }
  /// The prompt is in storage now. @param r Of its last token; copied.
  void fill(std::uint64_t entry, std::uint64_t storage, const row_result& r) {
    const std::uint64_t beside = sizeof(result) + r.logits.size_bytes();
    // First, as it alone may fail.
    first_.insert_or_assign(storage, result{entry, r.best, {r.logits.begin(), r.logits.end()}});
    prefixes_.fill(entry, storage,
                   backend_.packed_columns(storage) * backend_.column_bytes() + beside);
    bytes_ += beside;
  }
  /// Instead: it will not be, as nothing was allocated for it.
  void give_up(std::uint64_t entry) {
    prefixes_.abandon(entry);
    leave(entry);
  }
  /// Instead: it will not be, and the use of who computed it ends. No stream writes there any more.
  void give_up(std::uint64_t entry, std::uint64_t storage) {
    give_up(entry);
    discard(storage);
  }
  /// Frees what only prefill has used.
  void discard(std::uint64_t storage) { backend_.discard(forget(storage)); }
  /// What follows a prompt that was filled. Valid while it is in use.
  [[nodiscard]] row_result first(std::uint64_t storage) const {
    const result& r = first_.at(storage);
    return {r.best, r.logits};
  }
  /// How often `acquire` found a prompt, since the start.
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }

 private:
  /// All logits, not only the largest: a request with temperature draws from all of them, and its
  /// tokens may not depend on whether its prompt was computed before.
  struct result {
    std::uint64_t entry;
    std::optional<scored_token> best;
    std::vector<float> logits;
  };

  /// No longer counted. @returns It, for the backend to free.
  std::uint64_t forget(std::uint64_t storage) {
    bytes_ -= backend_.packed_columns(storage) * backend_.column_bytes();
    return storage;
  }

  Backend& backend_;
  kv::prefix_store prefixes_;
  std::unordered_map<std::uint64_t, result> first_;  // By storage.
  std::uint64_t bytes_ = 0;
  std::uint64_t hits_ = 0;
};

}  // namespace cohort::llama
