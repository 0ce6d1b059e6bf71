// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory budget of a decode batch: which sequences may enter, when one must be preempted, and
/// which one.
#pragma once

#include <cohort/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace cohort::kv {

/// How the batch's memory is committed.
enum class kv_commit : std::uint8_t {
  window,  ///< rows × L: address space is reserved, and pages are committed as the window grows.
  ring,    ///< rows × capacity, a power of two; growing holds the old and the new memory at once.
};

struct budget_options {
  std::uint64_t high_bytes = 0;  ///< Never exceeded; at least 1.
  /// Where shedding stops, and below which rows are added; at most high_bytes. The distance keeps a
  /// batch from shedding and restoring in turn.
  std::uint64_t low_bytes = 0;
  std::uint64_t bytes_per_column = 0;  ///< layers · 2 · kv_heads · head_size · element; at least 1.
  std::uint32_t lookahead = 1;         ///< Columns ahead that must still fit; at least 1.
  std::uint32_t min_residency = 16;    ///< Iterations during which a restored sequence is not
                                       ///< preempted.
  kv_commit commit = kv_commit::window;
};

/// The rows, L and capacity of a batch.
struct batch_shape {
  std::uint32_t rows = 0;
  std::uint64_t length = 0;
  std::uint64_t capacity = 0;
};

/// A live row, as the choice of a victim sees it.
struct victim_view {
  std::uint64_t span = 0;     ///< Columns from its start to the end.
  std::uint32_t length = 0;   ///< Columns to copy out.
  std::uint32_t stayed = 0;   ///< Iterations since it entered.
  std::uint8_t priority = 0;  ///< 0 is the most important.
  bool was_running = false;   ///< It entered from preemption.
};

/// No row may be preempted.
inline constexpr std::size_t no_victim = std::numeric_limits<std::size_t>::max();

/// The memory rules. Before an iteration, check `must_shed`; if it is true, preempt `victim` and
/// drop its row until `is_relieved`. Admit only sequences up to `max_length`; add rows while
/// `can_add_row` holds. All byte counts include the memory that is held while the batch grows.
/// Thread safety: immutable. O(1), `victim` O(rows²). Source: Baton, section 5.3 (memory
/// threshold), with hysteresis of our own.
class kv_budget {
 public:
  /// @throws config_error If an option is outside its range.
  explicit kv_budget(const budget_options& o) : o_{o} {
    expects(o.high_bytes >= 1, "kv_budget: high_bytes must be at least 1");
    expects(o.low_bytes <= o.high_bytes, "kv_budget: low_bytes must be at most high_bytes");
    expects(o.bytes_per_column >= 1, "kv_budget: bytes_per_column must be at least 1");
    expects(o.lookahead >= 1, "kv_budget: lookahead must be at least 1");
  }

  [[nodiscard]] const budget_options& options() const noexcept { return o_; }

  /// The most bytes held while a batch of this shape comes to a window of `span` columns.
  [[nodiscard]] std::uint64_t peak_bytes(const batch_shape& b, std::uint64_t span) const noexcept {
    std::uint64_t columns = span;
    if (o_.commit == kv_commit::ring) {
      columns = b.capacity;
      // An insertion may grow the ring and the next iteration grow it again, from half its size.
      if (span > b.capacity) {
        columns = std::max(b.capacity, std::bit_ceil(span) / 2) + std::bit_ceil(span);
      }
    }
    return bytes(b.rows, columns);
  }

  /// Whether a request could run to its end with the batch to itself. @returns False: reject it.
  [[nodiscard]] bool can_run_alone(std::uint32_t prompt, std::uint32_t max_new,
                                   std::uint64_t first_capacity = 0) const noexcept {
    const std::uint64_t span = std::uint64_t{prompt} + max_new;
    return peak_bytes({1, 0, first_capacity}, span) <= o_.high_bytes;
  }
  /// Whether the next iteration, of `columns` columns, would exceed the high mark.
  [[nodiscard]] bool must_shed(const batch_shape& b, std::uint32_t columns = 1) const noexcept {
    return peak_bytes(b, b.length + columns) > o_.high_bytes;
  }
  /// Whether shedding may stop.
  [[nodiscard]] bool is_relieved(const batch_shape& b) const noexcept {
    return peak_bytes(b, b.length + o_.lookahead) <= o_.low_bytes;
  }
  /// The longest sequence that may enter an empty slot of this batch; 0: none.
  [[nodiscard]] std::uint64_t max_length(const batch_shape& b) const noexcept;
  /// Whether a row may be added for a sequence of `length` columns.
  [[nodiscard]] bool can_add_row(batch_shape b, std::uint64_t length) const noexcept {
    ++b.rows;
    return peak_bytes(b, std::max(b.length, length) + o_.lookahead) <= o_.low_bytes;
  }

  /// Chooses the row to preempt: among the least important rows, the one that frees the most bytes
  /// for each byte to copy out. A short row frees a whole row of L at little cost; the longest row
  /// is the better victim only where it alone makes L long. The only live row is never preempted. A
  /// restored row is not preempted before `min_residency` iterations unless there is no other.
  [[nodiscard]] std::size_t victim(std::span<const victim_view> live) const noexcept;

 private:
  [[nodiscard]] std::uint64_t bytes(std::uint64_t rows, std::uint64_t columns) const noexcept {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    if (rows == 0 || columns == 0) return 0;
    if (columns > most / o_.bytes_per_column / rows) return most;
    return rows * columns * o_.bytes_per_column;
  }

  budget_options o_;
};

inline std::uint64_t kv_budget::max_length(const batch_shape& b) const noexcept {
  // No admission can lead to a span below the present one.
  const auto fits = [&](std::uint64_t m) {
    return peak_bytes(b, std::max(b.length, m) + o_.lookahead) <= o_.high_bytes;
  };
  if (!fits(1)) return 0;
  std::uint64_t low = 1;
  std::uint64_t high = std::uint64_t{1} << 31U;  // Prompts are 32-bit; so is a slot's length.
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

inline std::size_t kv_budget::victim(std::span<const victim_view> live) const noexcept {
  if (live.size() < 2) return no_victim;
  std::uint64_t longest = 0;
  std::uint64_t second = 0;
  for (const victim_view& v : live) {
    if (v.span > longest) {
      second = longest;
      longest = v.span;
    } else {
      second = std::max(second, v.span);
    }
  }
  std::size_t best = no_victim;
  bool best_rested = false;
  double best_ratio = 0;
  for (std::size_t i = 0; i < live.size(); ++i) {
    const victim_view& v = live[i];
    const std::uint64_t left = v.span == longest ? second : longest;
    const auto rows = static_cast<std::uint64_t>(live.size());
    const double ratio = static_cast<double>(rows * longest - (rows - 1) * left) /
                         static_cast<double>(std::max<std::uint32_t>(1, v.length));
    const bool rested = !v.was_running || v.stayed >= o_.min_residency;
    bool better = best == no_victim;
    if (!better && rested != best_rested) {
      better = rested;
    } else if (!better && v.priority != live[best].priority) {
      better = v.priority > live[best].priority;
    } else if (!better) {
      better = ratio > best_ratio;
    }
    if (!better) continue;
    best = i;
    best_rested = rested;
    best_ratio = ratio;
  }
  return best;
}

}  // namespace cohort::kv
