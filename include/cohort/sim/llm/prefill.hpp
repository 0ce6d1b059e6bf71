// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prefill beside a decode batch, in virtual time.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/llm/methods.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// When prompts are prefilled, and the padding computed.
struct decode_prefill {
  std::vector<time_point> done;  ///< By request.
  std::uint64_t padding = 0;     ///< Positions, of all requests in groups by length.
};

/// Prefills on a separate stream: whenever it is free, takes the shortest waiting prompts, at most
/// `rows` of them, for `per_token_ms` · rows · longest. The padding is that of all requests grouped
/// by length, whenever they arrive. O(n log n).
/// @param rows At least 1.  @throws config_error If virtual time passes 10^10 ms.
[[nodiscard]] inline decode_prefill prefill_beside(std::span<const decode_request> requests,
                                                   std::uint32_t rows, double per_token_ms) {
  decode_prefill out;
  std::vector<std::uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return std::pair{requests[i].prompt, i}; });
  for (std::size_t i = 0; i < order.size(); i += rows) {
    const std::size_t end = std::min<std::size_t>(order.size(), i + rows);
    const std::uint64_t longest = requests[order[end - 1]].prompt;
    for (std::size_t k = i; k < end; ++k) out.padding += longest - requests[order[k]].prompt;
  }

  std::ranges::sort(order, {}, [&](std::uint32_t i) { return std::pair{requests[i].arrival, i}; });
  using key = std::pair<std::uint32_t, std::uint32_t>;  // Length, index.
  std::priority_queue<key, std::vector<key>, std::greater<>> pool;
  std::size_t at = 0;
  time_point free_at{};
  std::vector<std::uint32_t> group;
  out.done.resize(requests.size());
  while (at < order.size() || !pool.empty()) {
    if (pool.empty()) free_at = std::max(free_at, requests[order[at]].arrival);
    for (; at < order.size() && requests[order[at]].arrival <= free_at; ++at) {
      pool.emplace(requests[order[at]].prompt, order[at]);
    }
    group.clear();
    while (!pool.empty() && group.size() < rows) {
      group.push_back(pool.top().second);
      pool.pop();
    }
    const double positions = static_cast<double>(group.size()) * requests[group.back()].prompt;
    free_at += from_ms(per_token_ms * positions);
    expects(free_at < time_point{from_ms(1e10)}, "decode: virtual time passes 1e10 ms");
    for (const std::uint32_t i : group) out.done[i] = free_at;
  }
  return out;
}

}  // namespace cohort::sim
