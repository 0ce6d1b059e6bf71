// SPDX-License-Identifier: Apache-2.0
/// @file
/// How fast an endpoint prefills prompts and makes tokens, as learned: `text_pace`.
#pragma once

#include <cohort/cluster/endpoint_table.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace cohort::cluster {

/// Learns the time of prefill, as a line through times by tokens, and the time between tokens, from
/// the tokens that the endpoint reports. What is old fades. A value. O(1) a call. Thread safety:
/// none. Source: none of the papers.
class text_pace {
 public:
  /// @param ms_per_token Of prefill, in milliseconds, before anything is learned; above 0.
  explicit text_pace(double ms_per_token = 1) : prior_{ms_per_token}, ms_per_token_{ms_per_token} {}

  /// The prefill of a prompt of so many tokens has taken so long.
  void learn_prefill(std::uint32_t tokens, duration took) noexcept {
    constexpr double fade = 0.98;
    // Prompts must differ by some tens of tokens before their times say what one token takes.
    constexpr double stiffness = 2500;
    const double ms = to_ms(took);
    const double n = tokens;
    samples_ = samples_ * fade + 1;
    tokens_ = tokens_ * fade + n;
    ms_ = ms_ * fade + ms;
    tokens_squared_ = tokens_squared_ * fade + n * n;
    tokens_ms_ = tokens_ms_ * fade + n * ms;
    const double variance = tokens_squared_ - tokens_ * tokens_ / samples_;
    const double covariance = tokens_ms_ - tokens_ * ms_ / samples_;
    ms_per_token_ =
        std::max(prior_ / 100, (covariance + stiffness * prior_) / (variance + stiffness));
    ms_of_start_ = std::max(0.0, (ms_ - ms_per_token_ * tokens_) / samples_);
  }
  /// A report has come. The time between tokens is taken from the first report that shows sequences
  /// to the next one with new tokens, and so on. After an idle time it is measured anew: when its
  /// sequences came is not known.
  void learn_gap(const endpoint_gauges& g, time_point now) noexcept {
    const bool was_working = std::exchange(is_working_, g.running > 0);
    if (was_working && is_working_) {
      if (g.generated_tokens <= reported_tokens_ || now <= reported_at_) return;
      const auto tokens = static_cast<double>(g.generated_tokens - reported_tokens_);
      const double gap = to_ms(now - reported_at_) * g.running / tokens;
      gap_ms_ = gap_ms_ == 0 ? gap : 0.8 * gap_ms_ + 0.2 * gap;
      gap_running_ = gap_running_ == 0 ? g.running : 0.8 * gap_running_ + 0.2 * g.running;
    }
    reported_tokens_ = g.generated_tokens;
    reported_at_ = now;
  }
  /// The endpoint has started anew, or was lost.
  void forget_gaps() noexcept {
    is_working_ = false;
    gap_ms_ = gap_running_ = 0;
  }

  /// Of a prompt of so many tokens, in milliseconds.
  [[nodiscard]] double prefill_ms(std::uint32_t tokens) const noexcept {
    return ms_of_start_ + tokens * ms_per_token_;
  }
  [[nodiscard]] double ms_per_token() const noexcept { return ms_per_token_; }
  /// Of each prompt, besides its tokens.
  [[nodiscard]] double ms_of_start() const noexcept { return ms_of_start_; }
  /// Expected between two tokens of a sequence while so many run; 0: nothing is known. It grows at
  /// most half as fast as the sequences: a batch costs something by itself.
  [[nodiscard]] double gap_ms(std::uint32_t running) const noexcept {
    if (gap_ms_ == 0 || gap_running_ < 1) return 0;
    const double grown = running / gap_running_;
    return gap_ms_ * std::max(1.0, std::min(grown, 1 + (grown - 1) * 0.5));
  }

 private:
  double prior_;
  double ms_per_token_;
  double ms_of_start_ = 0;
  // Sums over what was learned.
  double samples_ = 0;
  double tokens_ = 0;
  double ms_ = 0;
  double tokens_squared_ = 0;
  double tokens_ms_ = 0;
  bool is_working_ = false;            // By the last report.
  std::uint64_t reported_tokens_ = 0;  // By the last report that was learned from,
  time_point reported_at_{};           // which came then.
  double gap_ms_ = 0;                  // Between tokens,
  double gap_running_ = 0;             // with so many sequences.
};

}  // namespace cohort::cluster
