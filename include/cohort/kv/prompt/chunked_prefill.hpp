// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits long prompts into chunks that are prefilled into staging.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::kv {

/// A piece of a prompt: tokens [first, first + count). Their keys and values go behind the `first`
/// columns already staged.
struct prefill_chunk {
  request_id id{};
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool is_last = false;  ///< It yields the first token.
  friend bool operator==(const prefill_chunk&, const prefill_chunk&) = default;
};

/// How chunks are shared out.
enum class chunk_order : std::uint8_t {
  first_come,         ///< One prompt after another.
  equal_progress,     ///< In turn, one chunk each: short prompts overtake long ones.
  earliest_deadline,  ///< The prompt that is due first, then the next; a new one may interrupt.
};

/// Prefills prompts at most `chunk` tokens at a time, so that no piece of work on the prefill
/// stream is long. Chunks go to staging, never to the batch, so they cannot hold up its iterations.
/// Sans-I/O: `next` says what to compute, and `complete` records that it was computed. Allocates to
/// grow. Thread safety: none. `next` is O(1), the others O(waiting).
class chunked_prefill {
 public:
  /// @param chunk Most tokens of a piece; at least 1.
  /// @throws config_error If `chunk` is 0.
  explicit chunked_prefill(std::uint32_t chunk, chunk_order order = chunk_order::first_come)
      : chunk_{chunk}, order_{order} {
    expects(chunk >= 1, "chunked_prefill: chunk must be at least 1");
  }

  [[nodiscard]] bool empty() const noexcept { return jobs_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return jobs_.size(); }

  /// @param tokens Length of the prompt; at least 1.  @param done Tokens staged before, by a cached
  /// prefix; less than `tokens`.  @param by When it is due; equal deadlines go in order of arrival.
  /// @throws config_error If `done` is not less than `tokens`.
  void push(request_id id, std::uint32_t tokens, std::uint32_t done = 0, time_point by = never) {
    expects(done < tokens, "chunked_prefill: done must be less than tokens");
    const auto at = order_ == chunk_order::earliest_deadline
                        ? std::ranges::upper_bound(jobs_, by, {}, &job::by)
                        : jobs_.end();
    jobs_.insert(at, {id, tokens, done, by});
  }
  /// The piece to compute now. It stays the same until `complete`, `cancel` or, with
  /// earliest_deadline, `push`.
  [[nodiscard]] std::optional<prefill_chunk> next() const noexcept {
    if (jobs_.empty()) return std::nullopt;
    const job& j = jobs_.front();
    const std::uint32_t count = std::min(chunk_, j.tokens - j.done);
    return prefill_chunk{j.id, j.done, count, j.done + count == j.tokens};
  }
  /// Records that the piece given by `next` was computed.
  void complete() noexcept {
    job& j = jobs_.front();
    j.done += std::min(chunk_, j.tokens - j.done);
    if (j.done == j.tokens) {
      jobs_.erase(jobs_.begin());
    } else if (order_ == chunk_order::equal_progress) {
      std::ranges::rotate(jobs_, jobs_.begin() + 1);
    }
  }
  /// @returns Whether the prompt was there. Free its staging only when the piece under way has
  /// ended.
  bool cancel(request_id id) noexcept {
    return std::erase_if(jobs_, [&](const job& j) { return j.id == id; }) > 0;
  }

 private:
  struct job {
    request_id id;
    std::uint32_t tokens;
    std::uint32_t done;
    time_point by;
  };

  std::uint32_t chunk_;
  chunk_order order_;
  std::vector<job> jobs_;
};

}  // namespace cohort::kv
