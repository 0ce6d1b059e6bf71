// SPDX-License-Identifier: Apache-2.0
/// @file
/// The streams of a picker by id: `stream_index`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace cohort::cluster {

/// Makes a stream for each id, once: an id that ended is remembered while `memory` later ones end,
/// so that a doubled or late message does not open it anew. Streams do not move; those that ended
/// are used again. O(1) a call on average. Thread safety: none.
/// @tparam Stream Default-constructible, with `request_id id` and `reset()`.
template <class Stream>
class stream_index {
 public:
  /// @param memory Ended ids to remember; at least 1. @throws config_error If it is 0.
  explicit stream_index(std::size_t memory) : ended_(memory) {
    expects(memory > 0, "stream_index: memory must be at least 1");
  }

  /// A new stream, or null if the id is or was another's.
  [[nodiscard]] Stream* open(request_id id) {
    const auto [at, is_new] = by_id_.try_emplace(id.value(), nullptr);
    if (!is_new) return nullptr;
    if (idle_.empty()) {
      idle_.push_back(&all_.emplace_back());
      idle_.reserve(all_.size());
    }
    at->second = idle_.back();
    idle_.pop_back();
    at->second->id = id;
    ++live_;
    return at->second;
  }
  /// A stream that has not ended, or null.
  [[nodiscard]] Stream* find(request_id id) const noexcept {
    const auto at = by_id_.find(id.value());
    return at == by_id_.end() ? nullptr : at->second;
  }
  /// The stream has ended: it may become another's.
  void end(Stream& s) noexcept {
    by_id_.find(s.id.value())->second = nullptr;
    remember(s.id);
    s.reset();
    idle_.push_back(&s);  // Within the capacity that `open` reserved.
    --live_;
  }
  /// An id that was never opened must not be. @returns Whether it is new.
  bool bar(request_id id) {
    if (!by_id_.try_emplace(id.value(), nullptr).second) return false;
    remember(id);
    return true;
  }

  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  /// `f(Stream&)` for each stream there ever was at one time, ended ones as `reset` left them.
  template <class F>
  void for_each(F f) {
    for (Stream& s : all_) f(s);
  }

 private:
  void remember(request_id id) noexcept {
    request_id& oldest = ended_[next_];
    if (is_full_) by_id_.erase(oldest.value());
    oldest = id;
    if (++next_ == ended_.size()) {
      next_ = 0;
      is_full_ = true;
    }
  }

  std::deque<Stream> all_;
  std::vector<Stream*> idle_;
  std::unordered_map<std::uint64_t, Stream*> by_id_;  // Null: ended.
  std::vector<request_id> ended_;                     // A ring.
  std::size_t next_ = 0;
  bool is_full_ = false;
  std::size_t live_ = 0;
};

}  // namespace cohort::cluster
