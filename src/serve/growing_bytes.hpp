// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for a body that arrives: `growing_bytes`.
#pragma once

#include <sys/mman.h>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace cohort::serve {

/// Bytes to which more are appended. Unlike `std::string` it leaves new memory as it is, and large
/// blocks grow without a copy where the system can move their pages (`realloc`).
/// Thread safety: one thread at a time.
class growing_bytes {
 public:
  growing_bytes() = default;
  growing_bytes(growing_bytes&& other) noexcept { swap(other); }
  growing_bytes& operator=(growing_bytes&& other) noexcept {
    growing_bytes taken{std::move(other)};
    swap(taken);
    return *this;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes_.get(), size_}; }

  /// Makes room for `capacity` bytes in all, exactly. @throws std::bad_alloc Nothing has changed.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    void* const grown = std::realloc(bytes_.get(), capacity);
    if (grown == nullptr) throw std::bad_alloc{};
    static_cast<void>(bytes_.release());  // `realloc` has freed it.
    bytes_.reset(static_cast<char*>(grown));
    capacity_ = capacity;
    if (capacity >= large) prefer_large_pages();
  }
  /// Makes room for `more` bytes behind those that are there: twice as many as then are, for
  /// others that follow, but no more than `most` unless they are needed.
  void reserve_for(std::size_t more, std::size_t most) {
    const std::size_t size = size_ + more;
    if (size > capacity_) reserve(std::max(size, std::min(2 * size, most)));
  }
  /// The room behind them.
  [[nodiscard]] std::span<char> room() noexcept {
    return {bytes_.get() + size_, capacity_ - size_};
  }
  /// The first `n` bytes of the room have been written.
  void commit(std::size_t n) noexcept { size_ += n; }
  /// @pre There is room for them.
  void append(std::string_view bytes) noexcept {
    if (!bytes.empty()) std::memcpy(bytes_.get() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  /// Removes the first `n`. O(size).
  void drop_front(std::size_t n) noexcept {
    size_ -= n;
    if (size_ > 0) std::memmove(bytes_.get(), bytes_.get() + n, size_);
  }

 private:
  static constexpr std::size_t large = std::size_t{4} << 20U;
  /// A page fault for each 4 KiB would take longer than to receive them.
  void prefer_large_pages() noexcept {
    constexpr std::size_t page = 4096;
    void* begin = bytes_.get();
    std::size_t bytes = capacity_;
    if (std::align(page, bytes - page, begin, bytes) == nullptr) return;
    (void)::madvise(begin, bytes / page * page, MADV_HUGEPAGE);  // As the system likes.
  }
  void swap(growing_bytes& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  struct free_bytes {
    void operator()(char* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<char[], free_bytes> bytes_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace cohort::serve
