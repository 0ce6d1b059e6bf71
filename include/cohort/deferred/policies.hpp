// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies of deferred scheduling and their concepts: when a batch may start
/// (`window_policy`), which requests it contains (`gather_policy`), which size is worth protecting
/// (`target_policy`), and which model gets a free device (`priority_policy`).
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>

namespace cohort::deferred {

/// Says when a batch may start. It must start by latest = deadline − ℓ(size): a later answer is
/// clamped to that, and an answer in the past means at once. Semantics: pure, O(1), any thread.
/// Models: `frontrun`, `eager`, `timeout`, `adaptive_window`.
template <class P>
concept window_policy = std::copyable<P> && requires(const P& p, const batch_view& b) {
  { p.opens(b) } noexcept -> std::same_as<time_point>;
};

/// A window that depends on the pool's idle fraction. While it is not open, the scheduler asks
/// again after `looks_again`, a `duration` above 0, even if nothing has happened; otherwise the
/// last requests of a load would wait until their deadlines. Models: `adaptive_window`.
template <class P>
concept following_pool = window_policy<P> && requires {
  { P::looks_again } -> std::convertible_to<duration>;
};

/// A window that depends largely on values shared by successive requests: `prepare(load, slo,
/// target, target_latency, prepared&)` computes them into a new `prepared` or one of the same
/// model, and `opens(batch, prepared)` equals `opens(batch)`. Models: `adaptive_window`.
template <class P>
concept preparing_window =
    window_policy<P> && requires(const P& p, const batch_view& b, typename P::prepared& made) {
      { p.prepare(b.load, b.slo, b.target, b.target_latency, made) } noexcept;
      { p.opens(b, std::as_const(made)) } noexcept -> std::same_as<time_point>;
    };

/// Symphony's rule: start when one more request could no longer join, at deadline − ℓ(size + 1).
/// Waiting until then costs no request its deadline and lets the batch grow; waiting longer gains
/// nothing, because a request that arrives later could not have joined. Source: Symphony,
/// Algorithm 1.
struct frontrun {
  [[nodiscard]] constexpr time_point opens(const batch_view& b) const noexcept {
    return b.deadline - b.latency_next;
  }
};
static_assert(window_policy<frontrun>);

/// Starts a batch as soon as a device is free, as Clipper-like servers do.
struct eager {
  [[nodiscard]] constexpr time_point opens(const batch_view&) const noexcept {
    return distant_past;
  }
};
static_assert(window_policy<eager>);

/// Starts a batch when its first request has waited a fixed fraction of the SLO: batching delay as
/// in TensorFlow Serving and Triton. 0 is `eager`. Source: Symphony, section 3.4.
class timeout {
 public:
  /// @param fraction Fraction of the SLO to wait; 0 to 1.
  /// @throws config_error If `fraction` is not in 0 to 1.
  constexpr explicit timeout(double fraction) : fraction_{fraction} {
    expects(fraction >= 0 && fraction <= 1, "timeout: fraction must be in 0 to 1");
  }

  [[nodiscard]] constexpr time_point opens(const batch_view& b) const noexcept {
    return b.arrival +
           duration{static_cast<duration::rep>(fraction_ * static_cast<double>(b.slo.count()))};
  }

 private:
  double fraction_;
};
static_assert(window_policy<timeout>);

/// When batches of each size could end if sent at `now` to a device that is free at `free_at`.
class reach {
 public:
  /// @param run ℓ(b).
  /// @param sent ℓ(b) plus the delay between the decision and the earliest start of a batch of b.
  reach(const latency_curve& run, const latency_curve& sent, time_point now,
        time_point free_at = distant_past) noexcept
      : run_{&run}, sent_{&sent}, now_{now}, free_at_{free_at} {}

  /// When a batch of `size` ≥ 1 would end; never for sizes above the largest batch.
  [[nodiscard, gnu::always_inline]] time_point finish(std::uint32_t size) const noexcept {
    return free_at_ <= now_ ? now_ + (*sent_)(size)
                            : finish_behind(*run_, *sent_, now_, free_at_, size);
  }
  /// Whether a batch of `size` ≥ 1 may be sent and would end by `deadline`.
  [[nodiscard, gnu::always_inline]] bool makes(std::uint32_t size,
                                               time_point deadline) const noexcept {
    return size <= sent_->max_batch() && finish(size) <= deadline;
  }
  /// The largest batch of at most `size` that would end by `deadline`, or 0. O(1) if that is
  /// `size`, which is usual when a request joins a growing batch.
  [[nodiscard]] std::uint32_t largest_by(time_point deadline, std::uint32_t size) const noexcept {
    if (makes(size, deadline)) return size;
    return std::min(size, largest_by(deadline));
  }
  /// The largest batch that would end by `deadline`, or 0.
  [[nodiscard]] std::uint32_t largest_by(time_point deadline) const noexcept {
    const std::uint32_t fits = sent_->largest_within(deadline - now_);
    return free_at_ <= now_ ? fits : std::min(fits, run_->largest_within(deadline - free_at_));
  }

 private:
  /// Out of line, with values as arguments, so callers of `finish` keep a `reach` in registers.
  [[nodiscard, gnu::noinline]] static time_point finish_behind(const latency_curve& run,
                                                               const latency_curve& sent,
                                                               time_point now, time_point free_at,
                                                               std::uint32_t size) noexcept {
    return std::max(now + sent(size), free_at + run(size));
  }

  const latency_curve* run_;
  const latency_curve* sent_;
  time_point now_;
  time_point free_at_;
};

/// The first `drop` requests are dropped; the next `size` are the batch (0: no batch).
struct gathered {
  std::uint32_t drop = 0;
  std::uint32_t size = 0;
  friend bool operator==(const gathered&, const gathered&) = default;
};

/// Chooses the next batch of a queue. Semantics: pure; drop + size ≤ queue.size(); if size > 0 the
/// first request kept makes reach.finish(size); if size = 0 all are dropped. `target` ≥ 1 is the
/// batch size worth protecting. Any thread. Models: `head`, `drop_head`.
template <class P>
concept gather_policy = std::copyable<P> && requires(const P& p, const request_queue& q,
                                                     const reach& r, std::uint32_t target) {
  { p.gather(q, r, target) } noexcept -> std::same_as<gathered>;
};

/// Keeps the oldest request as long as it can be served: drops requests that cannot be in time even
/// alone, then takes as many as the first remaining one allows. After a burst the oldest requests
/// force small batches, which let more requests grow old. This state is metastable: batches may
/// stay near 1 for as long as the load lasts. Source: Symphony, section 3.2 (first rule). O(dropped
/// + log max_batch).
struct head {
  [[nodiscard]] gathered gather(const request_queue& queue, const reach& r,
                                std::uint32_t /*target*/) const noexcept {
    const time_point alone = r.finish(1);
    std::uint32_t drop = 0;
    while (drop < queue.size() && queue.deadline(drop) < alone) ++drop;
    if (drop == queue.size()) return {drop, 0};
    return {drop, r.largest_by(queue.deadline(drop), queue.size() - drop)};
  }
};
static_assert(gather_policy<head>);

/// Drops the oldest requests that would keep the batch below its target. Let s be the longest tail
/// of the queue whose first request can be in time in a batch of s. It drops requests that cannot
/// be in time in a batch of min(target, s), then takes as many as the first remaining one allows.
/// Returns to full batches after any burst. Source: Symphony, section 3.2 (second rule, after
/// Nexus), details settled by experiment. O(dropped + log queue · log max_batch); O(log max_batch)
/// while nothing is dropped.
struct drop_head {
  [[nodiscard, gnu::always_inline]] gathered gather(const request_queue& queue, const reach& r,
                                                    std::uint32_t target) const noexcept {
    const std::uint32_t n = queue.size();
    // Usually all requests fit into the growing batch: then none need be dropped for it.
    if (n > 0 && r.makes(n, queue.first_deadline())) return {0, n};
    return some_of(queue, r, target);
  }

 private:
  /// Out of line and with its own `reach`, so that the usual path is a few comparisons.
  [[gnu::noinline]] static gathered some_of(const request_queue& queue, reach r,
                                            std::uint32_t target) noexcept {
    const std::uint32_t n = queue.size();
    if (n == 0) return {};
    std::uint32_t drop = 0;
    // min(target, s) ≤ min(target, n): a request that fits the latter is not dropped.
    if (queue.deadline(0) < r.finish(std::min(target, n))) {
      const std::uint32_t tail = longest_tail(queue, r);
      if (tail == 0) return {n, 0};
      const time_point needed = r.finish(std::min(target, tail));
      while (queue.deadline(drop) < needed) ++drop;  // Stops at the tail's first request.
    }
    return {drop, r.largest_by(queue.deadline(drop), n - drop)};
  }
  /// The largest s ≤ n with deadline(n − s) ≥ finish(s). Both sides are monotone in s.
  static std::uint32_t longest_tail(const request_queue& queue, const reach& r) noexcept {
    std::uint32_t low = 0;  // 0 always holds; high + 1 never does.
    std::uint32_t high = queue.size();
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (queue.deadline(queue.size() - middle) >= r.finish(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};
static_assert(gather_policy<drop_head>);

/// The batch size that a gather policy should protect: at least 1, at most latency.max_batch().
/// Evaluated when the measured rate changes, not for each request. Semantics: pure. Any thread.
/// Models: `staggered_target`, `adaptive_target`.
template <class P>
concept target_policy = std::copyable<P> && requires(const P& p, const load_view& load,
                                                     duration slo, const latency_curve& latency) {
  { p.target(load, slo, latency) } noexcept -> std::same_as<std::uint32_t>;
};

/// The largest b with ℓ(b) + b / rate ≤ slo, or 1: the batch that fills during one turn of
/// staggered execution. Source: Symphony, section 3.3, equations 1 and 2 with b / rate for ℓ(b) /
/// N. O(log max_batch).
struct staggered_target {
  [[nodiscard]] std::uint32_t target(const load_view& load, duration slo,
                                     const latency_curve& latency) const noexcept {
    const auto fits = [&](std::uint32_t b) {
      return static_cast<double>(latency(b).count()) + 1e9 * b / load.rate <=
             static_cast<double>(slo.count());
    };
    if (load.rate <= 0) return 1;
    std::uint32_t low = 1;
    std::uint32_t high = std::max(1U, latency.largest_within(slo));
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};
static_assert(target_policy<staggered_target>);

/// A key for each candidate; the smallest is served first. Semantics: pure, O(1), any thread.
/// Models: `earliest_latest`, `adaptive_priority`.
template <class P>
concept priority_policy = std::copyable<P> && requires(const P& p, const batch_view& b) {
  { p.urgency(b) } noexcept -> std::same_as<time_point>;
};

/// The earliest latest start comes first. Source: Symphony, Algorithm 1, line 22.
struct earliest_latest {
  [[nodiscard]] constexpr time_point urgency(const batch_view& b) const noexcept {
    return b.deadline - b.latency;
  }
};
static_assert(priority_policy<earliest_latest>);

}  // namespace cohort::deferred
