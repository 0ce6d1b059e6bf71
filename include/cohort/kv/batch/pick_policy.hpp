// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which sequence enters a free slot next: the `pick_policy` concept, `fifo`, `by_priority` and
/// `best_fit`.
#pragma once

#include <cohort/core/version.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace cohort::kv {

/// A waiting sequence as a pick policy sees it.
struct waiting_view {
  std::uint64_t sequence = 0;  ///< Its position in the order of submission.
  std::uint32_t length = 0;    ///< Columns it would add; at least 1.
  std::uint32_t skipped = 0;   ///< How often a sequence submitted later was picked while this one
                               ///< waited.
  std::uint8_t priority = 0;   ///< 0 is the most important.
  bool was_running = false;    ///< Preempted: it goes before sequences of equal rank that never
                               ///< ran.
};

/// The batch as a pick policy sees it.
struct pick_view {
  std::uint64_t length = 0;  ///< L of the batch.
  /// The longest sequence that the budget admits now.
  std::uint64_t max_length = std::numeric_limits<std::uint64_t>::max();
};

/// A policy's answer if no sequence can enter.
inline constexpr std::size_t no_pick = std::numeric_limits<std::size_t>::max();

/// Chooses one of the waiting sequences, which are given by ascending `sequence`. Semantics: pure;
/// returns an index whose length is at most `max_length`, or `no_pick` only if there is none, so a
/// slot is never left empty while an admissible sequence waits. Any thread. Models: `fifo`,
/// `by_priority`, `best_fit`.
template <class P>
concept pick_policy =
    std::copyable<P> && requires(const P& p, std::span<const waiting_view> w, const pick_view& v) {
      { p.pick(w, v) } noexcept -> std::same_as<std::size_t>;
    };

/// Picks the first sequence that fits, in order of submission. O(those that do not fit).
struct fifo {
  [[nodiscard]] std::size_t pick(std::span<const waiting_view> waiting,
                                 const pick_view& batch) const noexcept {
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].length <= batch.max_length) return i;
    }
    return no_pick;
  }
};
static_assert(pick_policy<fifo>);

/// Picks the most important sequence that fits; among equals one that ran before, then the first
/// submitted. O(waiting).
struct by_priority {
  [[nodiscard]] std::size_t pick(std::span<const waiting_view> waiting,
                                 const pick_view& batch) const noexcept {
    std::size_t best = no_pick;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].length > batch.max_length) continue;
      if (best == no_pick || goes_before(waiting[i], waiting[best])) best = i;
    }
    return best;
  }

  [[nodiscard]] static constexpr bool goes_before(const waiting_view& a,
                                                  const waiting_view& b) noexcept {
    if (a.priority != b.priority) return a.priority < b.priority;
    return a.was_running && !b.was_running;
  }
};
static_assert(pick_policy<by_priority>);

/// Picks the longest sequence that does not lengthen the batch, otherwise the shortest. A dense
/// kernel reads every row over L columns, so the best choice fills its own row without making the
/// others longer. Ties go in order of submission; priorities count first. A sequence that was
/// skipped `max_skips` times goes first, the oldest such one before the others, so that none
/// starves. O(waiting).
struct best_fit {
  /// How many later sequences may pass one by; 0: no limit, and a long one may wait for ever.
  std::uint32_t max_skips = 64;

  [[nodiscard]] std::size_t pick(std::span<const waiting_view> waiting,
                                 const pick_view& batch) const noexcept {
    std::size_t best = no_pick;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].length > batch.max_length) continue;
      if (max_skips > 0 && waiting[i].skipped >= max_skips) return i;
      if (best == no_pick || fits_better(waiting[i], waiting[best], batch.length)) best = i;
    }
    return best;
  }

 private:
  static constexpr bool fits_better(const waiting_view& a, const waiting_view& b,
                                    std::uint64_t length) noexcept {
    if (a.priority != b.priority) return a.priority < b.priority;
    const bool a_fits = a.length <= length;
    const bool b_fits = b.length <= length;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.length > b.length : a.length < b.length;
  }
};
static_assert(pick_policy<best_fit>);

}  // namespace cohort::kv
