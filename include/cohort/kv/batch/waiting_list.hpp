// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sequences that wait for a slot, as pick policies see them.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/kv/batch/pick_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::kv {

/// Sequences by order of submission, each with a value of the caller's. Counts how often each was
/// passed by. `push` of the latest is O(1) amortised; `push` of an earlier one (a preempted
/// sequence comes back) is O(those after it); `take` is O(those before it). Allocates to grow.
/// Thread safety: none.
template <class T>
class waiting_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == views_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return views_.size() - head_; }
  [[nodiscard]] std::span<const waiting_view> views() const noexcept {
    return std::span{views_}.subspan(head_);
  }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return values_[head_ + i]; }

  void push(const waiting_view& view, T value) {
    if (head_ > views_.size() / 2 && views_.size() == views_.capacity()) compact();
    views_.push_back(view);
    values_.push_back(std::move(value));
    for (std::size_t i = views_.size() - 1;
         i > head_ && views_[i - 1].sequence > views_[i].sequence; --i) {
      std::swap(views_[i - 1], views_[i]);
      std::swap(values_[i - 1], values_[i]);
    }
  }

  /// Takes out the picked sequence at an index and counts one more skip for those before it.
  T take(std::size_t i) {
    COHORT_ASSERT(i < size());
    return remove(i, 1);
  }
  /// Takes out the sequence at an index for another reason, such as a cancellation.
  T erase(std::size_t i) {
    COHORT_ASSERT(i < size());
    return remove(i, 0);
  }

 private:
  T remove(std::size_t i, std::uint32_t skip) {
    T out = std::move(values_[head_ + i]);
    for (std::size_t at = head_ + i; at > head_; --at) {
      views_[at] = views_[at - 1];
      views_[at].skipped += skip;
      values_[at] = std::move(values_[at - 1]);
    }
    ++head_;
    if (empty()) {
      views_.clear();
      values_.clear();
      head_ = 0;
    }
    return out;
  }
  void compact() {
    views_.erase(views_.begin(), views_.begin() + static_cast<std::ptrdiff_t>(head_));
    values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }

  std::vector<waiting_view> views_;
  std::vector<T> values_;
  std::size_t head_ = 0;  // Taken from the front, in order of submission: most cases.
};

}  // namespace cohort::kv
