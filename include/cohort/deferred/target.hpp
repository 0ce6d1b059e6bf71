// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which batch size is worth protecting: the `target_policy` concept and `staggered_target`.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace cohort::deferred {

namespace requirement {
template <class P>
concept target_returns_batch_size =
    requires(const P& p, const load_view& load, duration slo, const latency_curve& latency) {
      { p.target(load, slo, latency) } -> std::same_as<std::uint32_t>;
    };
template <class P>
concept target_is_noexcept =
    requires(const P& p, const load_view& load, duration slo, const latency_curve& latency) {
      { p.target(load, slo, latency) } noexcept;
    };
}  // namespace requirement

/// The batch size that a gather policy should not fall below: at least 1, at most
/// latency.max_batch(). Evaluated when the measured rate changes, not for each request.
/// Semantics: pure. Any thread. Models: `staggered_target`, `adaptive_target`.
template <class P>
concept target_policy = std::copyable<P> && requirement::target_returns_batch_size<P> &&
                        requirement::target_is_noexcept<P>;

/// The largest b with ℓ(b) + b / rate ≤ slo, or 1: the batch that fills during one turn of a
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

}  // namespace cohort::deferred
