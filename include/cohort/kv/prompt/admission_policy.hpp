// SPDX-License-Identifier: Apache-2.0
/// @file
/// When prompts may start: the `admission_policy` concept and `start_at_once`.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/kv/prompt/prefill_promises.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>

namespace cohort::kv {

/// A prompt that waits for prefill, as an admission policy sees it.
struct waiting_prompt {
  std::uint64_t number = 0;           ///< Its position in the order of submission.
  std::uint32_t tokens = 1;           ///< At least 1.
  std::uint8_t priority = 0;          ///< 0 is the most important.
  time_point first_token_by = never;  ///< Deadline of its first token.
};

/// The amount of prefill for a group of prompts computed together, or for a piece of one prompt.
struct prefill_shape {
  std::uint32_t rows = 0;
  std::uint32_t longest = 0;  ///< Tokens of the longest row.
  std::uint64_t tokens = 0;   ///< Of all rows, without padding.

  /// Token positions of the padded rectangle that holds them.
  [[nodiscard]] constexpr std::uint64_t positions() const noexcept {
    return std::uint64_t{rows} * longest;
  }
  friend bool operator==(const prefill_shape&, const prefill_shape&) = default;
};

/// The load of the decode batch meanwhile. The driver measures or predicts the durations.
struct decode_load {
  std::uint32_t live = 0;      ///< Rows that decode.
  std::uint32_t room = 0;      ///< Free slots for which no sequence is prepared or under prefill.
  std::uint32_t behind = 0;    ///< Sequences prepared or under prefill for which there is no slot.
  duration iteration{0};       ///< Length of an iteration without prefill.
  duration mean_iteration{0};  ///< Recent mean, including prefill within iterations; 0: as
                               ///< `iteration`.
  duration departure_gap{0};   ///< Mean time between two sequences that leave, or more; 0: not
                               ///< known.
  /// Prefill is part of the iterations and makes them longer; false: it runs beside them.
  bool is_coupled = false;
  prefill_rate prefill{};  ///< Rate of prefill over `sequence::work`, for policies that promise.
};

/// A group that could start.
struct group_view {
  prefill_shape shape{};
  time_point first_token_by = never;  ///< Earliest of its members.
  bool is_full = false;               ///< No later prompt could join it.
};

/// A group may start in [earliest, latest]. Past `latest` it can start, but will be late. If
/// earliest > latest the window is empty: the group is not to start unless the load changes first.
struct start_window {
  time_point earliest = distant_past;
  time_point latest = never;
  friend bool operator==(const start_window&, const start_window&) = default;
};

/// Decides when waiting prompts start prefill. Semantics, all pure:
/// * `goes_before(a, b)`: a strict weak order, the order of service;
/// * `can_meet(shape, by, load, now)`: whether prefill of the shape, started now, ends at or before
///   `by`. If it holds for a shape, it holds for any part of it. If it does not hold now, it never
///   will unless the load falls;
/// * `promises()`: whether a prompt is refused on arrival unless it and all that are due later are
///   in time by `prefill_promises`. Then `goes_before` orders by deadline, groups contain those due
///   first, and no short prompts overtake;
/// * `drops_late()`: whether prompts that can no longer be in time are given up; otherwise they are
///   served when no other prompt waits;
/// * `window(group, load, now)`: when the group may start;
/// * `can_seat(shape, load)`: whether that many rows would find slots in time. If it holds for a
///   shape, it holds for any part of it. A group has no more rows than that, but at least one;
/// * `target(load)`: tokens that a group should have if that many wait. A prompt that could not be
///   in time in a group of that size counts as late. 0: no such rule;
/// * `chunk(load)`: the most prompt tokens that the next iteration may carry, if coupled. 0 only
///   while rows are live, so that either prefill or decoding makes progress.
/// Any thread. Models: `start_at_once`, `slo_admission`.
template <class P>
concept admission_policy =
    std::copyable<P> && requires(const P& p, const waiting_prompt& a, const prefill_shape& s,
                                 time_point t, const decode_load& l, const group_view& g) {
      { p.goes_before(a, a) } noexcept -> std::same_as<bool>;
      { p.can_meet(s, t, l, t) } noexcept -> std::same_as<bool>;
      { p.drops_late() } noexcept -> std::same_as<bool>;
      { p.window(g, l, t) } noexcept -> std::same_as<start_window>;
      { p.can_seat(s, l) } noexcept -> std::same_as<bool>;
      { p.target(l) } noexcept -> std::same_as<std::uint64_t>;
      { p.chunk(l) } noexcept -> std::same_as<std::uint32_t>;
      { p.promises() } noexcept -> std::same_as<bool>;
    };

/// First come, first served within a priority, at once; deadlines are ignored: fifo.
struct start_at_once {
  /// Most tokens of a coupled iteration; at least 1. The default takes prompts whole.
  std::uint32_t max_chunk = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] static constexpr bool goes_before(const waiting_prompt& a,
                                                  const waiting_prompt& b) noexcept {
    return a.priority != b.priority ? a.priority < b.priority : a.number < b.number;
  }
  [[nodiscard]] static constexpr bool can_meet(const prefill_shape&, time_point, const decode_load&,
                                               time_point) noexcept {
    return true;
  }
  [[nodiscard]] static constexpr bool promises() noexcept { return false; }
  [[nodiscard]] static constexpr bool drops_late() noexcept { return false; }
  [[nodiscard]] static constexpr start_window window(const group_view&, const decode_load&,
                                                     time_point) noexcept {
    return {};
  }
  [[nodiscard]] static constexpr bool can_seat(const prefill_shape&, const decode_load&) noexcept {
    return true;
  }
  [[nodiscard]] static constexpr std::uint64_t target(const decode_load&) noexcept { return 0; }
  [[nodiscard]] constexpr std::uint32_t chunk(const decode_load&) const noexcept {
    return std::max(1U, max_chunk);
  }
};
static_assert(admission_policy<start_at_once>);

}  // namespace cohort::kv
