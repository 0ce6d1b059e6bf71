// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server of LLMs by a simple model of rates, slots and prefixes: `text_endpoint`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

namespace cohort::sim {

/// A prompt of a trace.
struct text_request {
  time_point arrival{};
  std::uint32_t prompt = 1;             ///< Tokens; at least 1.
  std::uint32_t output = 1;             ///< Tokens to produce; at least 1.
  std::vector<std::uint64_t> blocks{};  ///< Hashes of the prompt's beginnings; may be empty.
};

/// What an endpoint is like. An iteration lasts `iteration_ms`, and more for each token of prefill,
/// each sequence that decodes and each thousand tokens of its keys and values.
struct text_endpoint_spec {
  double iteration_ms = 15;
  double prefill_ms_per_token = 0.1;
  double sequence_ms = 0.15;
  double kv_ms_per_thousand = 0.05;
  std::uint32_t chunk = 512;         ///< Most tokens of prefill in an iteration; at least 1.
  std::uint32_t slots = 128;         ///< Most sequences at a time; at least 1.
  std::uint64_t kv_tokens = 200000;  ///< That its memory holds; at least the longest sequence.
  std::uint32_t block_tokens = 16;   ///< Of a block of a prompt; at least 1.

  /// @throws config_error If a field is outside its range.
  void validate() const {
    expects(iteration_ms > 0 && prefill_ms_per_token >= 0 && sequence_ms >= 0 &&
                kv_ms_per_thousand >= 0,
            "text_endpoint: iteration_ms must be above 0, and other times at least 0");
    expects(chunk > 0 && slots > 0 && kv_tokens > 0 && block_tokens > 0,
            "text_endpoint: chunk, slots, kv_tokens and block_tokens must be at least 1");
  }
};

/// The prompts that kept their beginnings, the least recently used of which make room.
class block_cache {
 public:
  explicit block_cache(std::size_t capacity) : capacity_{capacity} {}

  /// How many leading blocks are there; then all of them are.
  std::uint32_t use(const std::vector<std::uint64_t>& blocks) {
    std::uint32_t hits = 0;
    while (hits < blocks.size() && at_.contains(blocks[hits])) ++hits;
    // The last block is the first to make room: without a beginning the rest is of no use.
    for (std::size_t i = blocks.size(); i-- > 0;) {
      if (const auto found = at_.find(blocks[i]); found != at_.end()) {
        order_.splice(order_.begin(), order_, found->second);
      } else {
        order_.push_front(blocks[i]);
        at_.emplace(blocks[i], order_.begin());
      }
    }
    while (at_.size() > capacity_) {
      at_.erase(order_.back());
      order_.pop_back();
    }
    return hits;
  }

 private:
  std::size_t capacity_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> at_;
};

/// Continuous batching with prefill in chunks: sequences start in the order in which they came, as
/// slots and memory allow, and each iteration gives every decoding sequence a token. Beginnings of
/// prompts are kept in the memory of the last ones used. Deterministic.
class text_endpoint {
 public:
  /// A sequence gets its first token, or its last; one of a single token only ends.
  struct event {
    std::uint32_t request;
    bool is_end;
  };

  explicit text_endpoint(const text_endpoint_spec& s)
      : spec_{s}, cache_{static_cast<std::size_t>(s.kv_tokens / s.block_tokens)} {
    s.validate();
  }

  void add(std::uint32_t request, const text_request& r) { waiting_.push_back({request, &r}); }

  /// Starts the next iteration, if there is work. @returns When it ends, or `never`.
  [[nodiscard]] time_point start(time_point now) {
    while (!waiting_.empty() && running_.size() < spec_.slots) {
      const text_request& r = *waiting_.front().of;
      const std::uint64_t needs = std::uint64_t{r.prompt} + r.output;
      if (kv_ + needs > spec_.kv_tokens && !running_.empty()) break;
      kv_ += needs;
      const std::uint64_t cached = std::uint64_t{cache_.use(r.blocks)} * spec_.block_tokens;
      const auto has = static_cast<std::uint32_t>(std::min<std::uint64_t>(cached, r.prompt - 1));
      cached_ += has;
      running_.push_back({waiting_.front().request, &r, r.prompt - has, r.output});
      waiting_.pop_front();
    }
    if (running_.empty()) return never;
    std::uint32_t room = spec_.chunk;
    std::uint32_t decoding = 0;
    std::uint64_t columns = 0;
    for (sequence& s : running_) {
      s.takes = s.prefill > 0 ? std::min(s.prefill, room) : 0;
      room -= s.takes;
      if (s.prefill > 0) continue;
      ++decoding;
      columns += s.of->prompt + s.of->output - s.left;
    }
    const double ms = spec_.iteration_ms + spec_.prefill_ms_per_token * (spec_.chunk - room) +
                      spec_.sequence_ms * decoding +
                      spec_.kv_ms_per_thousand * static_cast<double>(columns) / 1000;
    busy_ms_ += ms;
    return now + from_ms(ms);
  }
  /// The iteration ends. @param out What happens; appended.
  void finish(std::vector<event>& out) {
    std::size_t kept = 0;
    for (sequence& s : running_) {
      const bool decodes = s.prefill == 0;
      s.prefill -= s.takes;
      if (decodes || (s.takes > 0 && s.prefill == 0)) {
        --s.left;
        ++generated_;
        if (!decodes) out.push_back({s.request, false});
        if (s.left == 0) {
          out.push_back({s.request, true});
          kv_ -= std::uint64_t{s.of->prompt} + s.of->output;
          continue;
        }
      }
      running_[kept++] = s;
    }
    running_.resize(kept);
  }

  [[nodiscard]] std::uint32_t waiting() const noexcept {
    return static_cast<std::uint32_t>(waiting_.size());
  }
  [[nodiscard]] std::uint32_t running() const noexcept {
    return static_cast<std::uint32_t>(running_.size());
  }
  [[nodiscard]] double kv_use() const noexcept {
    return static_cast<double>(kv_) / static_cast<double>(spec_.kv_tokens);
  }
  [[nodiscard]] std::uint64_t generated() const noexcept { return generated_; }
  /// Tokens of prompts that were not prefilled again.
  [[nodiscard]] std::uint64_t cached() const noexcept { return cached_; }
  [[nodiscard]] double busy_ms() const noexcept { return busy_ms_; }

 private:
  struct queued {
    std::uint32_t request;
    const text_request* of;
  };
  struct sequence {
    std::uint32_t request;
    const text_request* of;
    std::uint32_t prefill;  // Tokens of the prompt to go.
    std::uint32_t left;     // Tokens to produce.
    std::uint32_t takes = 0;
  };

  text_endpoint_spec spec_;
  block_cache cache_;
  std::deque<queued> waiting_;
  std::vector<sequence> running_;
  std::uint64_t kv_ = 0;  // Reserved.
  std::uint64_t generated_ = 0;
  std::uint64_t cached_ = 0;
  double busy_ms_ = 0;
};

}  // namespace cohort::sim
