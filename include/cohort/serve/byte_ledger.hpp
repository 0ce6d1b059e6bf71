// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts the memory held by requests and their answers against one limit.
#pragma once

#include <cohort/core/version.hpp>

#include <atomic>
#include <cstddef>
#include <utility>

namespace cohort::serve {

/// Bytes held at present, and their limit. Thread safety: any thread. O(1).
class byte_ledger {
 public:
  explicit byte_ledger(std::size_t limit) noexcept : limit_{limit} {}

  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  [[nodiscard]] std::size_t held() const noexcept { return held_.load(std::memory_order_relaxed); }
  /// Takes `bytes` if that many are left. @returns Whether they were.
  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    std::size_t now = held();
    do {
      if (now > limit_ || bytes > limit_ - now) return false;
    } while (!held_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }
  /// Counts `bytes` that already exist, even beyond the limit: none are then left to take.
  void add(std::size_t bytes) noexcept { held_.fetch_add(bytes, std::memory_order_relaxed); }
  void give_back(std::size_t bytes) noexcept { held_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::size_t limit_;
  std::atomic<std::size_t> held_{0};
};

/// One owner's bytes in a ledger; returned at its end. Thread safety: one thread at a time.
class held_bytes {
 public:
  held_bytes() = default;
  explicit held_bytes(byte_ledger& of) noexcept : of_{&of} {}
  held_bytes(held_bytes&& other) noexcept
      : of_{other.of_}, bytes_{std::exchange(other.bytes_, 0)} {}
  held_bytes& operator=(held_bytes&& other) noexcept {
    std::swap(of_, other.of_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~held_bytes() {
    if (bytes_ > 0) of_->give_back(bytes_);
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Holds `bytes` from now on, in place of the previous ones. @returns Whether the ledger has
  /// them; if not, nothing has changed.
  [[nodiscard]] bool resize(std::size_t bytes) noexcept {
    if (bytes <= bytes_) {
      set(bytes);
    } else if (of_->take(bytes - bytes_)) {
      bytes_ = bytes;
    } else {
      return false;
    }
    return true;
  }
  /// Like `resize`, but also beyond the limit.
  void set(std::size_t bytes) noexcept {
    if (bytes > bytes_) of_->add(bytes - bytes_);
    if (bytes < bytes_) of_->give_back(bytes_ - bytes);
    bytes_ = bytes;
  }

 private:
  byte_ledger* of_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The default for requests: a quarter of the memory available to this process (by machine, control
/// group and resource limits), at least 64 MiB. The rest is for models, the rows of their batches,
/// and the runtime.
[[nodiscard]] std::size_t default_request_memory();

}  // namespace cohort::serve
