// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which of many mailboxes have unread messages: `dirty_set`.
#pragma once

#include <cohort/core/version.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// A set of small numbers. One thread adds to it and another empties it, so that the second visits
/// only what has changed. A bitmap with a summary bitmap of its words: an empty set costs one load
/// per 4096 numbers. Writes of the first thread before `mark` are visible to the second in
/// `take_all`. O(1) and O(members + numbers / 4096). Allocates only when made. Thread safety: one
/// thread may mark while one takes.
class dirty_set {
 public:
  explicit dirty_set(std::size_t numbers)
      : words_((numbers + 63) / 64), summary_((words_.size() + 63) / 64) {}

  void mark(std::uint32_t number) noexcept {
    const std::size_t word = number / 64;
    // If the word was not empty, its summary bit is set, or the taker has yet to read the word.
    if (words_[word].fetch_or(bit(number)) == 0) summary_[word / 64].fetch_or(bit(word));
  }
  [[nodiscard]] bool any() const noexcept {
    for (const auto& s : summary_) {
      if (s.load() != 0) return true;
    }
    return false;
  }
  /// Calls `f(number)` for each member and removes it. @returns Whether there was one.
  template <class F>
  bool take_all(F&& f) noexcept {
    bool found = false;
    for (std::size_t s = 0; s < summary_.size(); ++s) {
      if (summary_[s].load(std::memory_order_relaxed) == 0) continue;
      for_each_bit(summary_[s].exchange(0), [&](std::size_t w) {
        const std::size_t word = s * 64 + w;
        for_each_bit(words_[word].exchange(0), [&](std::size_t b) {
          found = true;
          f(static_cast<std::uint32_t>(word * 64 + b));
        });
      });
    }
    return found;
  }

 private:
  static constexpr std::uint64_t bit(std::size_t n) noexcept { return std::uint64_t{1} << n % 64; }
  template <class F>
  static void for_each_bit(std::uint64_t set, F&& f) noexcept {
    for (; set != 0; set &= set - 1) f(static_cast<std::size_t>(std::countr_zero(set)));
  }

  std::vector<std::atomic<std::uint64_t>> words_;
  std::vector<std::atomic<std::uint64_t>> summary_;
};

}  // namespace cohort::deferred
