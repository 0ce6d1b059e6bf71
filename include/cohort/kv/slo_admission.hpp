// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling of prefill groups: `prefill_latency`, `linear_prefill`, `slo_admission`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/admission_policy.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>

namespace cohort::kv {

namespace requirement {
template <class L>
concept prefill_time_is_a_duration = requires(const L& l, const prefill_shape& s) {
  { l(s) }
  noexcept->std::same_as<duration>;
};
}  // namespace requirement

/// How long prefill of a shape takes, with the device to itself. Semantics: pure, at least 0,
/// non-decreasing in rows, longest and tokens. Any thread. Model: `linear_prefill`.
template <class L>
concept prefill_latency = std::copyable<L> && requirement::prefill_time_is_a_duration<L>;

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
  /// Wait for others to join a group, while it stays in time. False: start at once.
  bool defer = true;
  /// Tokens of one more prompt, for whom a deferred group keeps its place open; at least 1.
  std::uint32_t typical_prompt = 256;
  /// Wait for a slot before prefill: a first token without one leads to a long gap.
  bool await_slot = true;
  bool drop_late = true;  ///< False: late ones are served when nobody else waits.
};

/// Earliest deadline first, of prompts that can still be met, within the window
///
///     [min(max(frontrun, slot), latest), latest],   latest = d − l(group),
///     frontrun = d − l(group and one more),         slot = now + wait − between_tokens − l(group),
///
/// d being the earliest deadline of a first token in the group and `wait` the expected time until
/// its members have slots. Coupled, l counts the iterations that carry the pieces. With drop_late
/// a group whose first tokens would have to wait for slots longer than between_tokens is still
/// started at `latest`: departures are a guess, the deadline is not. Source: Symphony, section 3
/// (deferred scheduling; prefill is named there as future work), docs/kv/admission.md. O(log
/// max_chunk). Thread safety: immutable.
template <prefill_latency Latency = linear_prefill>
class slo_admission {
 public:
  /// @throws config_error If an option is outside its range.
  explicit slo_admission(const slo_options& o = {}, Latency latency = {})
      : o_{o}, latency_{latency} {
    expects(o.between_tokens > duration{0}, "slo_admission: between_tokens must be above 0");
    expects(o.max_chunk >= 1, "slo_admission: max_chunk must be at least 1");
    expects(o.min_chunk <= o.max_chunk, "slo_admission: min_chunk must be at most max_chunk");
    expects(o.typical_prompt >= 1, "slo_admission: typical_prompt must be at least 1");
  }

  [[nodiscard]] const slo_options& options() const noexcept { return o_; }

  [[nodiscard]] static constexpr bool goes_before(const waiting_prompt& a,
                                                  const waiting_prompt& b) noexcept {
    if (a.priority != b.priority) return a.priority < b.priority;
    return a.first_token_by != b.first_token_by ? a.first_token_by < b.first_token_by
                                                : a.number < b.number;
  }
  [[nodiscard]] bool can_meet(const prefill_shape& s, time_point by, const decode_load& load,
                              time_point now) const noexcept {
    return by == never || duration_of(s, load) <= by - now;
  }
  [[nodiscard]] bool drops_late() const noexcept { return o_.drop_late; }

  [[nodiscard]] start_window window(const group_view& g, const decode_load& load,
                                    time_point now) const noexcept {
    if (g.first_token_by == never) return {};
    const duration time = duration_of(g.shape, load);
    start_window w{.latest = g.first_token_by - time};
    if (o_.defer && !g.is_full) {
      prefill_shape more = g.shape;
      ++more.rows;
      more.longest = std::max(more.longest, o_.typical_prompt);
      more.tokens += o_.typical_prompt;
      w.earliest = g.first_token_by - duration_of(more, load);
    }
    if (o_.await_slot && o_.between_tokens < unbounded) {
      w.earliest = std::max(w.earliest,
                            now + wait_for_slots(g.shape.rows, load) - time_between(load) - time);
    }
    w.earliest = std::min(w.earliest, w.latest);
    return w;
  }

  /// As many as would have slots within between_tokens of a first token now.
  [[nodiscard]] std::uint32_t rows(const decode_load& load) const noexcept {
    constexpr std::uint32_t all = std::numeric_limits<std::uint32_t>::max();
    if (!o_.await_slot || o_.between_tokens >= unbounded) return all;
    if (load.departure_gap <= duration{0}) return all;
    const std::int64_t found =
        std::int64_t{load.room} - load.behind + time_between(load) / load.departure_gap;
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(found, 1, all));
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
    if (!load.is_coupled || load.live == 0) return latency_(s);
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
  [[nodiscard]] static duration wait_for_slots(std::uint32_t rows,
                                               const decode_load& load) noexcept {
    const std::uint64_t wanted = std::uint64_t{rows} + load.behind;
    if (wanted <= load.room) return duration{0};
    return load.departure_gap * static_cast<std::int64_t>(wanted - load.room);
  }
  /// What of the gap after the first token the wait for a slot may take: not its own iteration.
  [[nodiscard]] duration time_between(const decode_load& load) const noexcept {
    return std::max(duration{0}, o_.between_tokens - load.iteration);
  }

  slo_options o_;
  Latency latency_;
};
static_assert(admission_policy<slo_admission<>>);

}  // namespace cohort::kv
