// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for an arriving body: `growing_bytes`.
#pragma once

#include <sys/mman.h>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace cohort::serve {

/// A growing sequence of bytes. Unlike in `std::string` new bytes are not initialised, and blocks
/// from 1 MiB on grow without a copy: the system moves their pages. Thread safety: one thread at a
/// time.
class growing_bytes {
 public:
  growing_bytes() = default;
  ~growing_bytes() { capacity_ < mapped ? std::free(bytes_) : unmap(bytes_, capacity_); }
  growing_bytes(growing_bytes&& other) noexcept { swap(other); }
  growing_bytes& operator=(growing_bytes&& other) noexcept {
    growing_bytes taken{std::move(other)};
    swap(taken);
    return *this;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_, size_}; }

  /// Sets the capacity, exactly. @throws std::bad_alloc Nothing has changed.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    void* const grown = capacity < mapped ? std::realloc(bytes_, capacity) : map(capacity);
    if (grown == nullptr) throw std::bad_alloc{};
    bytes_ = static_cast<char*>(grown);
    capacity_ = capacity;
  }
  /// Makes room for `more` bytes at the end: grows to twice the needed size, in expectation of
  /// further ones, but to no more than `most` unless needed.
  void reserve_for(std::size_t more, std::size_t most) {
    const std::size_t size = size_ + more;
    if (size > capacity_) reserve(std::max(size, std::min(2 * size, most)));
  }
  /// The unused room at the end.
  [[nodiscard]] std::span<char> room() noexcept { return {bytes_ + size_, capacity_ - size_}; }
  /// Notes that the first `n` bytes of the room have been written.
  void commit(std::size_t n) noexcept { size_ += n; }
  /// @pre There is room for them.
  void append(std::string_view bytes) noexcept {
    if (!bytes.empty()) std::memcpy(bytes_ + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  /// Removes the first `n`. O(size).
  void drop_front(std::size_t n) noexcept {
    size_ -= n;
    if (size_ > 0) std::memmove(bytes_, bytes_ + n, size_);
  }

 private:
  static constexpr std::size_t mapped = std::size_t{1} << 20U;  // Larger blocks are mapped.

  static void unmap(void* block, std::size_t bytes) noexcept { (void)::munmap(block, bytes); }
  /// @returns The bytes in a new block of pages that replaces the old one; null: the old one stays.
  void* map(std::size_t capacity) noexcept {
    const bool is_mapped = capacity_ >= mapped;
    void* const block = is_mapped ? ::mremap(bytes_, capacity_, capacity, MREMAP_MAYMOVE)
                                  : ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
    if (!is_mapped) {
      if (size_ > 0) std::memcpy(block, bytes_, size_);
      std::free(bytes_);
    }
    // Large pages if available: a page fault for each 4 KiB takes longer than receiving them.
    (void)::madvise(block, capacity, MADV_HUGEPAGE);
    return block;
  }
  void swap(growing_bytes& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  char* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace cohort::serve
