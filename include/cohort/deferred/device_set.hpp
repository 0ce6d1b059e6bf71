// SPDX-License-Identifier: Apache-2.0
/// @file
/// A set of devices that finds its smallest member quickly.
#pragma once

#include <cohort/core/ids.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// A bitmap of device ids. Insert and erase are O(1); `smallest` is O(devices / 64). Allocates only
/// in `resize`. Thread safety: none.
class device_set {
 public:
  void resize(std::size_t devices) { words_.resize((devices + 63) / 64); }

  void insert(device_id d) noexcept {
    size_ += !contains(d);
    words_[d.index() / 64] |= bit(d);
  }
  void erase(device_id d) noexcept {
    size_ -= contains(d);
    words_[d.index() / 64] &= ~bit(d);
  }
  [[nodiscard]] bool contains(device_id d) const noexcept {
    return (words_[d.index() / 64] & bit(d)) != 0;
  }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The member with the smallest id. The set must not be empty.
  [[nodiscard]] device_id smallest() const noexcept {
    std::size_t w = 0;
    while (words_[w] == 0) ++w;
    return device_id{static_cast<std::uint32_t>(w * 64) +
                     static_cast<std::uint32_t>(std::countr_zero(words_[w]))};
  }

 private:
  static std::uint64_t bit(device_id d) noexcept { return std::uint64_t{1} << (d.index() % 64); }

  std::vector<std::uint64_t> words_;
  std::size_t size_ = 0;
};

}  // namespace cohort::deferred
