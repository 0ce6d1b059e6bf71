// SPDX-License-Identifier: Apache-2.0
/// @file
/// When a batch may start: the `window_policy` concept and its models `frontrun`, `eager` and
/// `timeout`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>

#include <concepts>
#include <utility>

namespace cohort::deferred {

namespace requirement {
template <class P>
concept opens_returns_time_point = requires(const P& p, const batch_view& b) {
  { p.opens(b) } -> std::same_as<time_point>;
};
template <class P>
concept opens_is_noexcept = requires(const P& p, const batch_view& b) {
  { p.opens(b) } noexcept;
};
}  // namespace requirement

/// Says from when on a batch may start. It must start by latest = deadline − ℓ(size); a later
/// answer is clamped to that, an answer in the past means at once. Semantics: pure, O(1), any
/// thread. Models: `frontrun`, `eager`, `timeout`, `adaptive_window`.
template <class P>
concept window_policy = std::copyable<P> && requirement::opens_returns_time_point<P> &&
                        requirement::opens_is_noexcept<P>;

/// A window that depends on how much the pool idles. While it is not open it is asked again after
/// `looks_again`, a `duration` above 0, though nothing has happened: else the last requests of a
/// load that ends would wait until their deadlines. Models: `adaptive_window`.
template <class P>
concept following_pool = window_policy<P> && requires {
  { P::looks_again } -> std::convertible_to<duration>;
};

/// A window of which much depends on what stays from one request to the next: `prepare(load, slo,
/// target, target_latency, prepared&)` works that out, into a `prepared` of the same model's or a
/// new one, and `opens(batch, prepared)` is `opens(batch)` with it. Models: `adaptive_window`.
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

/// Starts a batch as soon as a device is free: what Clipper-like servers do.
struct eager {
  [[nodiscard]] constexpr time_point opens(const batch_view&) const noexcept {
    return distant_past;
  }
};
static_assert(window_policy<eager>);

/// Starts a batch a fixed part of the SLO after its first arrival: batching delay as in TensorFlow
/// Serving and Triton. 0 is `eager`. Source: Symphony, section 3.4.
class timeout {
 public:
  /// @param fraction Part of the SLO to wait; 0 to 1.
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

}  // namespace cohort::deferred
