// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which prompts to prefill together: of similar length, within a bound on padding.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/kv/prompt/admission_policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace cohort::kv {

/// Limits of a prefill group.
struct prefill_limits {
  std::uint32_t max_rows = 8;  ///< Prompts in a group; at least 1.
  /// Padding over real tokens, Σ(n − len) / Σ len, n being the longest; at least 0. At 0 only equal
  /// lengths share a group.
  double max_waste = 0.25;
  /// Token positions of a group, rows × n; 0: no limit. A single prompt may be longer.
  std::uint64_t max_positions = 0;
};

/// Forms groups around the oldest prompt, so that none starves. Thread safety: none; it keeps a
/// buffer, and allocates to grow it.
class prefill_groups {
 public:
  /// @throws config_error If max_rows is 0, or max_waste is negative or not finite.
  explicit prefill_groups(const prefill_limits& limits) : limits_{limits} {
    expects(limits.max_rows >= 1, "prefill_groups: max_rows must be at least 1");
    expects(std::isfinite(limits.max_waste) && limits.max_waste >= 0,
            "prefill_groups: max_waste must be finite and at least 0");
  }

  /// The group that contains the first of `lengths`, which are given in order of service. It
  /// repeatedly adds the neighbour in length that adds the least padding, the shorter one first,
  /// while the limits hold. Among equal lengths the earlier go first. O(n log n).
  /// @returns Indices, ascending by length; empty if there are no prompts. Valid until the next
  /// call.
  [[nodiscard]] std::span<const std::uint32_t> next(std::span<const std::uint32_t> lengths) {
    return next(lengths, [](std::span<const std::uint32_t>, const prefill_shape&) { return true; });
  }
  /// The same, with a further limit from the caller.
  /// @param allow bool(std::span<const std::uint32_t> members, const prefill_shape&): whether these
  /// may form one group. Not called for the first prompt alone.
  template <class Allow>
  [[nodiscard]] std::span<const std::uint32_t> next(std::span<const std::uint32_t> lengths,
                                                    Allow allow);

  [[nodiscard]] const prefill_limits& limits() const noexcept { return limits_; }

  /// Σ(n − len) / Σ len of a group.
  [[nodiscard]] static double waste(std::span<const std::uint32_t> lengths) noexcept {
    std::uint64_t longest = 0;
    std::uint64_t sum = 0;
    for (const std::uint32_t m : lengths) {
      longest = std::max<std::uint64_t>(longest, m);
      sum += m;
    }
    if (sum == 0) return 0;
    return static_cast<double>(longest * lengths.size() - sum) / static_cast<double>(sum);
  }

 private:
  [[nodiscard]] bool is_allowed(std::uint64_t rows, std::uint64_t longest,
                                std::uint64_t sum) const noexcept {
    if (rows > limits_.max_rows) return false;
    if (limits_.max_positions > 0 && rows > 1 && rows * longest > limits_.max_positions) {
      return false;
    }
    return static_cast<double>(rows * longest - sum) <=
           limits_.max_waste * static_cast<double>(sum);
  }

  prefill_limits limits_;
  std::vector<std::uint32_t> order_;
};

template <class Allow>
std::span<const std::uint32_t> prefill_groups::next(std::span<const std::uint32_t> lengths,
                                                    Allow allow) {
  if (lengths.empty()) return {};
  order_.resize(lengths.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::ranges::sort(order_, [&](std::uint32_t a, std::uint32_t b) {
    return lengths[a] != lengths[b] ? lengths[a] < lengths[b] : a < b;
  });
  const auto at = [&](std::size_t i) -> std::uint64_t { return lengths[order_[i]]; };
  std::size_t first = 0;
  while (order_[first] != 0) ++first;
  std::size_t last = first + 1;  // [first, last) of order_.
  std::uint64_t sum = at(first);
  for (;;) {
    const std::uint64_t rows = last - first + 1;
    const std::uint64_t longest = at(last - 1);
    const auto may = [&](std::size_t from, std::size_t to, std::uint64_t most, std::uint64_t all) {
      return is_allowed(rows, most, all) &&
             allow(std::span<const std::uint32_t>{order_}.subspan(from, to - from),
                   prefill_shape{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(most),
                                 all});
    };
    // Adding a shorter prompt pads that one; adding a longer one pads all the others.
    const bool shorter = first > 0 && may(first - 1, last, longest, sum + at(first - 1));
    const bool longer = last < order_.size() && may(first, last + 1, at(last), sum + at(last));
    if (!shorter && !longer) break;
    const bool take_shorter =
        shorter && (!longer || longest - at(first - 1) <= (at(last) - longest) * (rows - 1));
    if (take_shorter) {
      sum += at(--first);
    } else {
      sum += at(last++);
    }
  }
  return std::span<const std::uint32_t>{order_}.subspan(first, last - first);
}

}  // namespace cohort::kv
