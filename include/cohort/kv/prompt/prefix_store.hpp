// SPDX-License-Identifier: Apache-2.0
/// @file
/// Packed keys and values of prompts that were seen before.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace cohort::kv {

/// Whether a prompt's columns exist.
enum class prefix_state : std::uint8_t {
  absent,   ///< No sequence computes it: the caller must, and then calls `fill`.
  filling,  ///< Another sequence prefills it: wait instead of computing it again.
  ready,    ///< Copy from `storage`.
};

/// Answer to `acquire`.
struct prefix_hit {
  prefix_state state = prefix_state::absent;
  std::uint64_t entry = 0;    ///< Pass it to `release` later.
  std::uint64_t storage = 0;  ///< The packed columns, if `ready`.
};

/// Equal prompts are prefilled once: all their sequences are embedded from the same packed columns,
/// which are never written again. An entry stays while it is used. Unused entries stay until the
/// limit on bytes drops the least recently used one. Prompts are compared token by token: a hash
/// alone could give one tenant the answer of another. Allocates an entry for each new prompt;
/// O(prompt) an operation. Thread safety: none.
class prefix_store {
 public:
  /// @param max_bytes Bytes kept, used entries included; 0: nothing is kept beyond its use.
  explicit prefix_store(std::uint64_t max_bytes) : max_bytes_{max_bytes} {}

  /// Bytes of all filled entries: what `fill` was told, and `own_bytes` of each.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Bytes of an entry itself: the tokens of its prompt, to compare with, and its places in the
  /// list and the two tables.
  [[nodiscard]] static constexpr std::uint64_t own_bytes(std::size_t prompt) noexcept {
    return prompt * sizeof(token_id) + sizeof(item) + 16 * sizeof(void*);
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Whether the prompt's columns exist or are being computed, so that `acquire` would find them.
  [[nodiscard]] bool knows(std::span<const token_id> prompt) const {
    const auto [first, last] = by_hash_.equal_range(hash_of(prompt));
    return std::any_of(first, last, [&](const auto& h) {
      const item& e = *h.second;
      return (e.ready || e.claimed) && std::ranges::equal(prompt, e.prompt);
    });
  }
  /// Finds or reserves the entry of a prompt and uses it until `release`.
  prefix_hit acquire(std::span<const token_id> prompt);

  /// The entry's columns are in `storage` now.
  /// @param bytes Everything that is kept with the entry outside this store: columns, results.
  void fill(std::uint64_t entry, std::uint64_t storage, std::uint64_t bytes) noexcept {
    auto& e = *by_id_.at(entry);
    COHORT_ASSERT(!e.ready);
    e.ready = true;
    e.storage = storage;
    e.bytes = bytes + own_bytes(e.prompt.size());
    bytes_ += e.bytes;
  }
  /// The sequence that computed the entry has stopped; the next call of `look` returns `absent`,
  /// and its caller takes over.
  void abandon(std::uint64_t entry) noexcept { by_id_.at(entry)->claimed = false; }
  /// The present state of an entry in use. O(1).
  prefix_hit look(std::uint64_t entry) noexcept { return answer(*by_id_.at(entry)); }

  /// Ends one use. @param freed Called with the storage of each entry that is dropped.
  template <class F>
  void release(std::uint64_t entry, F freed);

 private:
  struct item {
    std::uint64_t id;
    std::uint64_t hash;
    std::vector<token_id> prompt;
    std::uint64_t storage = 0;
    std::uint64_t bytes = 0;  // Once filled.
    std::uint32_t users = 0;
    bool ready = false;
    bool claimed = false;  // A sequence is computing it.
  };
  using items = std::list<item>;

  static std::uint64_t hash_of(std::span<const token_id> prompt) noexcept {
    std::uint64_t h = 0xCBF29CE484222325ULL;
    for (const token_id t : prompt) {
      h = (h ^ static_cast<std::uint32_t>(t)) * 0x100000001B3ULL;
      h ^= h >> 29U;
    }
    return h;
  }
  static prefix_hit answer(item& e) noexcept {
    if (e.ready) return {prefix_state::ready, e.id, e.storage};
    if (e.claimed) return {prefix_state::filling, e.id, 0};
    e.claimed = true;
    return {prefix_state::absent, e.id, 0};
  }
  void drop(items::iterator it);

  std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t next_id_ = 1;
  items entries_;  // By last use, latest at the back.
  std::unordered_multimap<std::uint64_t, items::iterator> by_hash_;
  std::unordered_map<std::uint64_t, items::iterator> by_id_;
};

inline prefix_hit prefix_store::acquire(std::span<const token_id> prompt) {
  const std::uint64_t hash = hash_of(prompt);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    item& e = *it->second;
    if (!std::ranges::equal(prompt, e.prompt)) continue;
    ++e.users;
    entries_.splice(entries_.end(), entries_, it->second);
    return answer(e);
  }
  entries_.push_back({.id = next_id_++,
                      .hash = hash,
                      .prompt = {prompt.begin(), prompt.end()},
                      .storage = 0,
                      .bytes = 0,
                      .users = 1,
                      .ready = false,
                      .claimed = false});
  const auto at = std::prev(entries_.end());
  by_hash_.emplace(hash, at);
  by_id_.emplace(at->id, at);
  return answer(*at);
}

template <class F>
void prefix_store::release(std::uint64_t entry, F freed) {
  const auto at = by_id_.at(entry);
  COHORT_ASSERT(at->users > 0);
  --at->users;
  if (at->users == 0 && !at->ready) drop(at);  // Its prefill was given up.
  for (auto it = entries_.begin(); it != entries_.end() && bytes_ > max_bytes_;) {
    const auto next = std::next(it);
    if (it->users == 0 && it->ready) {
      freed(it->storage);
      drop(it);
    }
    it = next;
  }
}

inline void prefix_store::drop(items::iterator it) {
  bytes_ -= it->bytes;
  by_id_.erase(it->id);
  const auto [first, last] = by_hash_.equal_range(it->hash);
  for (auto h = first; h != last; ++h) {
    if (h->second != it) continue;
    by_hash_.erase(h);
    break;
  }
  entries_.erase(it);
}

}  // namespace cohort::kv
