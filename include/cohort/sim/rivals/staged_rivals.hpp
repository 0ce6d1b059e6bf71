// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rivals of staged batching as policies of the same pipeline.
#pragma once

#include <cohort/batching/policy.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace cohort::sim {

/// Zero-batch and delay-batch: one batch at a time runs unchanged through all stages. It is formed
/// from all waiting requests when the device is idle and the oldest has waited for `delay` or the
/// largest batch is waiting. Use it with `entry_rule::idle`. Models: `staging_policy`. Source: the
/// batchers of inference servers, DVABatch section 8.
struct whole_batch : batching::plain_policy {
  duration delay{};  ///< 0: zero-batch. At least 0.

  [[nodiscard]] batching::entry_decision entry(const batching::entry_view& v) const noexcept {
    const time_point due = v.waiting[0].arrival + delay;
    if (v.eligible < batch_max && v.now < due) return {.again = due};
    return plain_policy::entry(v);
  }
  using run_to_of = whole_batch;
  [[nodiscard]] std::uint32_t run_to(const batching::batch_row&, std::uint32_t) const noexcept {
    return std::numeric_limits<std::uint32_t>::max();
  }
};
static_assert(batching::staging_policy<whole_batch>);

/// LazyBatching: at every hand-over all waiting requests catch up with the running batch, if its
/// oldest request is still predicted to end within the SLO. Use it with a stage per operator.
/// Models: `staging_policy`. Source: Choi et al., "Lazy Batching", HPCA 2021.
struct lazy_batch : batching::plain_policy {
  const batching::stage_profile* profile = nullptr;
  duration slo{};

  [[nodiscard]] std::uint32_t stretch(const batching::hand_over_view& v) const noexcept {
    time_point oldest = never;
    for (std::uint32_t i = 0; i < v.row.size; ++i) {
      if (v.row.slots[i].live) oldest = std::min(oldest, v.row.slots[i].request.arrival);
    }
    for (std::uint32_t n = v.may_join; n > 0; --n) {
      const duration left =
          profile->time_between(0, v.stage + 1, n, v.row.bucket) +
          profile->time_between(v.stage + 1, profile->stages(), v.row.size + n, v.row.bucket);
      if (v.now + left - oldest <= slo) return n;
    }
    return 0;
  }
};
static_assert(batching::staging_policy<lazy_batch>);

/// Early exit: after each stage except the last a request exits with probability `part`; the rest
/// of its row continues as a smaller one. The exits are fixed by tags and seed, so that all
/// policies see the same. Models: `staging_policy`.
/// @tparam Base Decides everything else.  Source: DVABatch, section 9.2.
template <batching::staging_policy Base>
struct early_exit : Base {
  double part = 0;  ///< 0 to 1.
  std::uint64_t seed = 1;

  early_exit(Base base, double p, std::uint64_t s) : Base{std::move(base)}, part{p}, seed{s} {
    expects(p >= 0 && p <= 1, "early_exit: part must be in 0 to 1");
  }
  [[nodiscard]] batching::verdict judge(const batching::staged_request& r,
                                        std::uint32_t stage) const noexcept {
    // SplitMix64 of (seed, tag, stage).
    std::uint64_t x = seed * 0x9E3779B97F4A7C15U + r.tag * 0xD1B54A32D192ED03U + stage + 1;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    x ^= x >> 31U;
    return static_cast<double>(x >> 11U) * 0x1p-53 < part ? batching::verdict::leave
                                                          : batching::verdict::go_on;
  }
};

}  // namespace cohort::sim
