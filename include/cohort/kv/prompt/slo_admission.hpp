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
  /// Of a coupled iteration, at least 1. While nobody decodes nothing else bounds it.
  std::uint32_t max_chunk = 1U << 20U;
  /// Progress of prefill however slow the iterations are; at most max_chunk. 0: none.
  std::uint32_t min_chunk = 1;
  /// Keep a group back for others to join, while it stays in time. Where one prefill stream serves
  /// all this does not pay but for tiny prompts; see docs/kv/admission.md.
  bool defer = false;
  /// Tokens of one more prompt, for whom a deferred group keeps its place open; at least 1.
  std::uint32_t typical_prompt = 256;
  /// A deferred group starts so long before it must, since another may be at work when it must; at
  /// least 0. With one prefill stream, about what a full group takes.
  duration reserve{0};
  /// Wait for a slot before prefill: after a first token without one comes a long gap.
  bool await_slot = true;
  /// Tokens of a group while so many wait: under overload the prompts that come first have little
  /// time left, and groups that suit them are small, cost much and make the next ones later still.
  /// Whoever cannot be in time in a group of this size counts as late. 0: no such rule, as if
  /// coupled, where pieces have one size whatever the group.
  std::uint64_t target_tokens = 0;
  bool drop_late = true;  ///< False: late ones are served when nobody else waits.
  /// What is accepted is a promise: refused on arrival is who could not be in time, or not without
  /// one who was accepted being late. Without `defer` and `target_tokens`, whose groups would break
  /// it. A slot is not part of it: with `await_slot` one that finds none is late all the same.
  bool promise = false;
};

/// Earliest deadline first, of prompts that can still be met, within the window
///
///     [d − l(group and one more) − reserve, d − l(group)],
///
/// d being the earliest deadline of a first token in the group; without `defer` from now on.
/// Coupled, l counts the iterations that carry the pieces. A group for which there would be no
/// slots does not start before one leaves; at d − l it is given up or, with serving late, starts
/// all the same. Source: Symphony, section 3 (deferred scheduling; prefill is named there as future
/// work), docs/kv/admission.md. O(log max_chunk). Thread safety: immutable.
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

  /// By deadline within a priority; with promises by deadline alone, since that order can keep the
  /// most of them, and by priority where it is the same.
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

  /// Whether as many slots are free, or will be soon: n of those at work leave in a time t with
  /// good certainty if n <= m - 2 √m, m being how many leave in it on average.
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

  /// How long prefill of a shape takes beside or within the iterations; `unbounded` while these
  /// leave no time for it.
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
