// SPDX-License-Identifier: Apache-2.0
/// @file
/// The buffers between stages, in sets, and when a stage may use a pair of them.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cohort::batching {

/// How a buffer is in use now.
enum class buffer_use : std::uint8_t { none, reading, writing };

/// The state of a buffer. It has two fields so that "back to its previous state" is exact even when
/// its reader validates it while it is written.
struct buffer_state {
  bool valid = true;  ///< The stage that reads it may use its set.
  buffer_use use = buffer_use::none;
  /// Parts of a split row in it that the reader has not consumed yet.
  std::uint32_t unread_parts = 0;

  [[nodiscard]] constexpr std::string_view shown() const noexcept {
    if (use == buffer_use::reading) return "in-reading";
    if (use == buffer_use::writing) return "in-writing";
    return valid ? "available" : "invalid";
  }
  friend bool operator==(const buffer_state&, const buffer_state&) = default;
};

/// The states of all buffers of one model: boundary 0 is its input, boundary i is written by stage
/// i - 1 and read by stage i. A stage's pair in set j is the buffers of set j at the boundaries
/// before and after it. Initially all are available. A value. Source: DVABatch, section 6.
class buffer_sets {
 public:
  /// @param stages At least 1.  @param sets Buffers at each boundary, at least 1: one makes the
  ///               pipeline serial, two let neighbouring stages work at once.
  /// @throws config_error If one is 0.
  buffer_sets(std::uint32_t stages, std::uint32_t sets) : sets_{sets} {
    expects(stages >= 1, "buffer_sets: stages must be at least 1");
    expects(sets >= 1, "buffer_sets: buffer sets must be at least 1");
    states_.resize(std::size_t{stages + 1} * sets);
  }

  [[nodiscard]] std::uint32_t sets() const noexcept { return sets_; }
  [[nodiscard]] std::uint32_t boundaries() const noexcept {
    return static_cast<std::uint32_t>(states_.size() / sets_);
  }
  [[nodiscard]] buffer_state& at(std::uint32_t boundary, std::uint32_t set) noexcept {
    COHORT_ASSERT(set < sets_);
    return states_[std::size_t{boundary} * sets_ + set];
  }
  [[nodiscard]] const buffer_state& at(std::uint32_t boundary, std::uint32_t set) const noexcept {
    return const_cast<buffer_sets*>(this)->at(boundary, set);
  }

  /// Whether a stage may work on a set: its input is available, its output available or invalid.
  [[nodiscard]] bool is_legit(std::uint32_t stage, std::uint32_t set) const noexcept {
    const buffer_state& in = at(stage, set);
    return in.valid && in.use == buffer_use::none && at(stage + 1, set).use == buffer_use::none;
  }
  [[nodiscard]] bool all_available() const noexcept {
    for (const buffer_state& b : states_) {
      if (b != buffer_state{}) return false;
    }
    return true;
  }

 private:
  std::uint32_t sets_;
  std::vector<buffer_state> states_;
};

}  // namespace cohort::batching
