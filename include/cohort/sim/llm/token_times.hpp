// SPDX-License-Identifier: Apache-2.0
/// @file
/// Token times: first and last tokens, and the gaps between tokens.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/sim/llm/methods.hpp>
#include <cohort/sim/recorder.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Records token times of requests. O(log different gaps) a token. Thread safety: none.
class decode_times {
 public:
  explicit decode_times(std::size_t requests) : first_(requests), latest_(requests) {}

  void note_first(std::size_t request, time_point now) {
    first_[request] = now;
    latest_[request] = now;
    ++tokens_;
  }
  /// Adds a token; times of a request do not decrease.
  void note(std::size_t request, time_point now) {
    ++gaps_[now - latest_[request]];
    latest_[request] = now;
    ++tokens_;
  }

  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// The latest token time; the start, if there is none.
  [[nodiscard]] time_point last() const noexcept {
    time_point t{};
    for (const time_point each : latest_) t = std::max(t, each);
    return t;
  }
  /// The q-quantile of the times from arrival to the first token. O(n log n).
  [[nodiscard]] double first_token_ms(std::span<const decode_request> requests, double q) const {
    std::vector<duration> waits;
    waits.reserve(first_.size());
    for (std::size_t i = 0; i < first_.size(); ++i) {
      waits.push_back(first_[i] - requests[i].arrival);
    }
    return to_ms(percentile(waits, q));
  }
  /// The q-quantile of the gaps of all requests; 0 if there is none. O(different gaps).
  [[nodiscard]] double between_tokens_ms(double q) const {
    std::uint64_t total = 0;
    for (const auto& [gap, count] : gaps_) total += count;
    const double rank = std::max(1.0, std::ceil(q * static_cast<double>(total)));
    std::uint64_t seen = 0;
    for (const auto& [gap, count] : gaps_) {
      seen += count;
      if (static_cast<double>(seen) >= rank) return to_ms(gap);
    }
    return 0;
  }
  [[nodiscard]] std::vector<time_point> take_first() noexcept { return std::move(first_); }
  [[nodiscard]] std::vector<time_point> take_latest() noexcept { return std::move(latest_); }

 private:
  std::vector<time_point> first_;
  std::vector<time_point> latest_;
  std::map<duration, std::uint64_t> gaps_;
  std::uint64_t tokens_ = 0;
};

}  // namespace cohort::sim
