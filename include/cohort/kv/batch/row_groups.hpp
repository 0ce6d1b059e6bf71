// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits rows of different lengths into several launches of a dense kernel.
#pragma once

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace cohort::kv {

/// The rows of one launch; each is read over `columns` columns.
struct row_group {
  std::uint32_t first = 0;  ///< Index into `row_groups::order()`.
  std::uint32_t rows = 0;
  std::uint64_t columns = 0;
  friend bool operator==(const row_group&, const row_group&) = default;
};

/// Splits the rows of a batch, sorted by span, so that a dense kernel reads as little as possible.
/// It minimises Σ rows × longest + launches × launch_columns over all splits into at most
/// `max_groups`. A kernel that starts at each row's own first column does not need this. O(groups ·
/// rows²); allocates to grow its buffers. Thread safety: none.
class row_groups {
 public:
  /// @param max_groups Launches; at least 1.
  /// @param launch_columns Cost of one launch, in columns read.
  /// @throws config_error If max_groups is 0.
  explicit row_groups(std::uint32_t max_groups, std::uint64_t launch_columns = 0)
      : max_groups_{max_groups}, launch_{launch_columns} {
    expects(max_groups >= 1, "row_groups: max_groups must be at least 1");
  }

  /// Splits rows of these spans; those of span 0 are in no group. Valid until the next call.
  std::span<const row_group> split(std::span<const std::uint64_t> spans);

  /// Row numbers, by descending span.
  [[nodiscard]] std::span<const std::uint32_t> order() const noexcept { return order_; }

 private:
  std::uint32_t max_groups_;
  std::uint64_t launch_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> cost_;   // [groups][rows]: the least cost for the first rows.
  std::vector<std::uint32_t> begin_;  // Where the last group of that split begins.
  std::vector<row_group> groups_;
};

inline std::span<const row_group> row_groups::split(std::span<const std::uint64_t> spans) {
  order_.clear();
  groups_.clear();
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    if (spans[i] > 0) order_.push_back(i);
  }
  std::ranges::sort(order_, [&](std::uint32_t a, std::uint32_t b) {
    return spans[a] != spans[b] ? spans[a] > spans[b] : a < b;
  });
  const auto n = static_cast<std::uint32_t>(order_.size());
  if (n == 0) return groups_;
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  const std::uint32_t most = std::min(max_groups_, n);
  const std::size_t width = n + 1;
  cost_.assign(width * (most + 1), none);
  begin_.assign(width * (most + 1), 0);
  cost_[0] = 0;
  std::uint32_t best = 1;
  for (std::uint32_t g = 1; g <= most; ++g) {
    for (std::uint32_t end = g; end <= n; ++end) {
      for (std::uint32_t begin = g - 1; begin < end; ++begin) {
        const std::uint64_t before = cost_[(g - 1) * width + begin];
        if (before == none) continue;
        const std::uint64_t cost = before + launch_ + (end - begin) * spans[order_[begin]];
        if (cost >= cost_[g * width + end]) continue;
        cost_[g * width + end] = cost;
        begin_[g * width + end] = begin;
      }
    }
    if (cost_[g * width + n] < cost_[best * width + n]) best = g;
  }
  for (std::uint32_t g = best, end = n; g > 0; --g) {
    const std::uint32_t begin = begin_[g * width + end];
    groups_.push_back({begin, end - begin, spans[order_[begin]]});
    end = begin;
  }
  std::ranges::reverse(groups_);
  return groups_;
}

}  // namespace cohort::kv
