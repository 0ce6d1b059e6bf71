// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling of prefill groups: `prefill_latency`, `linear_prefill`, `slo_admission`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/prompt/admission_policy.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>

namespace cohort::kv {

/// How long prefill of a shape takes, with the device to itself. Semantics: pure, at least 0,
/// non-decreasing in rows, longest and tokens. Any thread. Model: `linear_prefill`.
template <class L>
concept prefill_latency = std::copyable<L> && requires(const L& l, const prefill_shape& s) {
  { l(s) } noexcept -> std::same_as<duration>;
};

/// fixed + per_token · tokens + per_position · rows · longest; all at least 0. A kernel that packs
/// rows costs by token, one that pads them by position.
struct linear_prefill {
  duration fixed{0};
  duration per_token{0};
  duration per_position{0};

  [[nodiscard]] constexpr duration operator()(const prefill_shape& s) const noexcept {
    return fixed + per_token * static_cast<std::int64_t>(s.tokens) +
           per_position * static_cast<std::int64_t>(s.positions());
  }
};
static_assert(prefill_latency<linear_prefill>);

/// Promises and how they are kept.
struct slo_options {
  /// Longest time between two tokens of a sequence; above 0. It bounds a coupled iteration and how
  /// long a first token may be ahead of a slot.
  duration between_tokens = unbounded;
  /// Most prompt tokens of a coupled iteration; at least 1. The only bound while no row decodes.
  std::uint32_t max_chunk = 1U << 20U;
  /// Prompt tokens an iteration carries however slow it is; at most max_chunk. 0: none.
  std::uint32_t min_chunk = 1;
  /// Keep a group back for others to join, while it stays in time. Where one prefill stream serves
  /// all this does not pay but for tiny prompts; see docs/kv/admission.md.
  bool defer = false;
  /// Tokens of one more prompt: a deferred group stays open for a prompt of this size; at least 1.
  std::uint32_t typical_prompt = 256;
  /// How long a deferred group starts before its latest start, since another may be at work
  /// then; at least 0. With one prefill stream, about what a full group takes.
  duration reserve{0};
  /// Wait for a slot before prefill: otherwise a long gap follows the first token.
  bool await_slot = true;
  /// Tokens that a group should have while that many wait. Under overload the prompts that come
  /// first have little time left; groups that suit them are small, cost much and make the next ones
  /// later still. A prompt that cannot be in time in a group of this size counts as late. 0: no
  /// such rule; also when coupled, where pieces have one size whatever the group.
  std::uint64_t target_tokens = 0;
  bool drop_late = true;  ///< False: late prompts are served when no other prompt waits.
  /// Acceptance is a promise: a prompt is refused on arrival if it could not be in time, or would
  /// make an accepted one late. Requires `defer` and `target_tokens` to be off, since their groups
  /// would break promises. A slot is not part of the promise: with `await_slot`, a prompt that
  /// finds no slot is late all the same.
  bool promise = false;
};

/// Earliest deadline first, among prompts that can still be met, within the window
///
///     [d − l(group and one more) − reserve, d − l(group)],
///
/// where d is the earliest deadline of a first token in the group; without `defer` the window opens
/// now. When coupled, l counts the iterations that carry the pieces. A group that would find no
/// slots does not start before one is freed. At d − l it is given up or, when late prompts are
/// served, starts all the same. Source: Symphony, section 3 (deferred scheduling; prefill is named
/// there as future work), docs/kv/admission.md. O(log max_chunk). Thread safety: immutable.
template <prefill_latency Latency = linear_prefill>
class slo_admission {
 public:
  /// @throws config_error If an option is outside its range.
  explicit slo_admission(const slo_options& o = {}, Latency latency = {})
      : o_{o}, latency_{latency} {
    expects(o.between_tokens > duration{0}, "slo_admission: between_tokens must be above 0");
    expects(o.max_chunk >= 1, "slo_admission: max_chunk must be at least 1");
    expects(o.min_chunk <= o.max_chunk, "slo_admission: min_chunk must be at most max_chunk");
    expects(o.reserve >= duration{0}, "slo_admission: reserve must be at least 0");
    expects(o.typical_prompt >= 1, "slo_admission: typical_prompt must be at least 1");
    expects(!o.promise || (!o.defer && o.target_tokens == 0),
            "slo_admission: promise excludes defer and target_tokens");
  }

  [[nodiscard]] const slo_options& options() const noexcept { return o_; }

  /// By deadline within a priority. With promises, by deadline alone, since that order can keep the
  /// most promises; priority then breaks ties.
  [[nodiscard]] bool goes_before(const waiting_prompt& a, const waiting_prompt& b) const noexcept {
    if (!o_.promise && a.priority != b.priority) return a.priority < b.priority;
    if (a.first_token_by != b.first_token_by) return a.first_token_by < b.first_token_by;
    return a.priority != b.priority ? a.priority < b.priority : a.number < b.number;
  }
  [[nodiscard]] bool promises() const noexcept { return o_.promise; }
  [[nodiscard]] bool can_meet(const prefill_shape& s, time_point by, const decode_load& load,
                              time_point now) const noexcept {
    return by == never || duration_of(s, load) <= by - now;
  }
  [[nodiscard]] bool drops_late() const noexcept { return o_.drop_late; }

  [[nodiscard]] start_window window(const group_view& g, const decode_load& load,
                                    time_point) const noexcept {
    const bool has_seats = can_seat(g.shape, load);
    if (g.first_token_by == never) return {.earliest = has_seats ? distant_past : never};
    const duration time = duration_of(g.shape, load);
    start_window w{.latest = g.first_token_by - time};
    if (o_.defer && !g.is_full) {
      prefill_shape more = g.shape;
      ++more.rows;
      more.longest = std::max(more.longest, o_.typical_prompt);
      more.tokens += o_.typical_prompt;
      w.earliest = g.first_token_by - duration_of(more, load) - o_.reserve;
    }
    w.earliest = std::min(w.earliest, w.latest);
    if (!has_seats) w.earliest = w.latest + duration{o_.drop_late ? 1 : 0};
    return w;
  }

  /// Whether that many slots are free, or will be soon. If m sequences leave in a time t on
  /// average, at least n leave with good certainty when n <= m - 2 √m.
  [[nodiscard]] bool can_seat(const prefill_shape& s, const decode_load& load) const noexcept {
    if (!o_.await_slot) return true;
    const std::uint64_t wanted = std::uint64_t{s.rows} + load.behind;
    if (wanted <= load.room) return true;
    if (load.departure_gap <= duration{0}) return false;
    const duration slack = std::max(duration{0}, o_.between_tokens - load.iteration);
    const double mean = to_ms(slack + duration_of(s, load)) / to_ms(load.departure_gap);
    return static_cast<double>(wanted - load.room) <= mean - 2 * std::sqrt(mean);
  }
  [[nodiscard]] std::uint64_t target(const decode_load& load) const noexcept {
    return load.is_coupled ? 0 : o_.target_tokens;
  }

  /// The most tokens with iteration + l(piece) <= between_tokens.
  [[nodiscard]] std::uint32_t chunk(const decode_load& load) const noexcept {
    if (load.live == 0) return o_.max_chunk;
    std::uint32_t low = o_.min_chunk;
    std::uint32_t high = o_.max_chunk;
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (load.iteration + latency_({1, middle, middle}) <= o_.between_tokens) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /// How long prefill of a shape takes beside or within the iterations; `unbounded` if the
  /// iterations leave no time for it.
  [[nodiscard]] duration duration_of(const prefill_shape& s,
                                     const decode_load& load) const noexcept {
    if (!load.is_coupled) return latency_(s);
    const std::uint64_t piece = chunk(load);
    if (piece == 0) return unbounded;
    const auto pieces = static_cast<std::int64_t>(s.tokens / piece);
    const auto rest = static_cast<std::uint32_t>(s.tokens % piece);
    const auto whole = static_cast<std::uint32_t>(piece);
    duration sum = pieces * (load.iteration + latency_({1, whole, whole}));
    if (rest > 0) sum += load.iteration + latency_({1, rest, rest});
    return sum;
  }

 private:
  slo_options o_;
  Latency latency_;
};
static_assert(admission_policy<slo_admission<>>);

}  // namespace cohort::kv
