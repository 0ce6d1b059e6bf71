// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which parts of one block of memory are free: best fit with coalescing, over offsets alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>

namespace cohort::runtime::detail {

/// The book-keeping of an executor's pool; the memory itself is the executor's, wherever it lies.
/// Used when buffers are made, not when work runs. Complexity: take is linear in the free blocks,
/// give_back logarithmic. Thread safety: none.
class block_pool {
 public:
  /// @param alignment Of every block's offset and size; a power of two.
  block_pool(std::size_t bytes, std::size_t alignment)
      : alignment_{alignment}, bytes_{round_up(bytes)} {
    free_.emplace(0, bytes_);
  }

  /// All of it, a multiple of the alignment.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// Bytes that a request of `bytes` takes, rounded up to the alignment.
  [[nodiscard]] std::size_t round_up(std::size_t bytes) const noexcept {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }
  /// The offset of `bytes` in the smallest block that holds them; nothing if none does.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes) {
    // Checked first: rounding up the largest sizes would wrap around.
    if (bytes > bytes_) return std::nullopt;
    const std::size_t wanted = round_up(bytes);
    auto best = free_.end();
    for (auto i = free_.begin(); i != free_.end(); ++i) {
      if (i->second >= wanted && (best == free_.end() || i->second < best->second)) best = i;
    }
    if (best == free_.end()) return std::nullopt;
    const std::size_t at = best->first;
    const std::size_t left = best->second - wanted;
    free_.erase(best);
    if (left > 0) free_.emplace(at + wanted, left);
    return at;
  }
  /// Frees a block returned by `take(bytes)`.
  void give_back(std::size_t at, std::size_t bytes) {
    std::size_t size = round_up(bytes);
    auto next = free_.lower_bound(at);
    if (next != free_.end() && at + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == at) {
        at = previous->first;
        size += previous->second;
        free_.erase(previous);
      }
    }
    free_.emplace(at, size);
  }

  [[nodiscard]] std::size_t free_bytes() const noexcept {
    std::size_t sum = 0;
    for (const auto& [at, size] : free_) sum += size;
    return sum;
  }
  [[nodiscard]] std::size_t largest_free() const noexcept {
    std::size_t largest = 0;
    for (const auto& [at, size] : free_) largest = std::max(largest, size);
    return largest;
  }

 private:
  std::size_t alignment_;
  std::size_t bytes_;
  std::map<std::size_t, std::size_t> free_;  // Offset to size.
};

}  // namespace cohort::runtime::detail
