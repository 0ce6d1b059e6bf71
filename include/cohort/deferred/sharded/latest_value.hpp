// SPDX-License-Identifier: Apache-2.0
/// @file
/// A mailbox that keeps only the latest value: `latest_value`.
#pragma once

#include <cohort/core/version.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cohort::deferred {

/// One thread stores values, another loads the latest; earlier unread ones are lost. A store never
/// waits; a load retries while a store is in progress. No read-modify-write, fence or allocation:
/// each side costs about as many moves as the value has words. It occupies whole cache lines.
/// Thread safety: one thread may store while one loads.
///
/// @tparam T Copied as bytes.
template <class T>
  requires std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>
class alignas(64) latest_value {
 public:
  latest_value() noexcept { store(T{}); }

  void store(const T& value) noexcept {
    std::array<std::uint64_t, words> raw{};
    std::memcpy(raw.data(), &value, sizeof(T));
    const std::uint64_t before = version_.load(std::memory_order_relaxed);
    version_.store(before + 1, std::memory_order_relaxed);
    // A load that sees one of these words also sees the odd version before it.
    for (std::size_t i = 0; i < words; ++i) words_[i].store(raw[i], std::memory_order_release);
    version_.store(before + 2, std::memory_order_release);
  }

  [[nodiscard]] T load() const noexcept {
    std::array<std::uint64_t, words> raw;
    for (;;) {
      const std::uint64_t before = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < words; ++i) raw[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) break;
    }
    T value;
    std::memcpy(static_cast<void*>(&value), raw.data(), sizeof(T));
    return value;
  }
  /// Changes with each store.
  [[nodiscard]] std::uint64_t version() const noexcept {
    return version_.load(std::memory_order_acquire);
  }

 private:
  static constexpr std::size_t words = (sizeof(T) + 7) / 8;

  std::atomic<std::uint64_t> version_{0};  // Odd during a store.
  std::array<std::atomic<std::uint64_t>, words> words_{};
};

}  // namespace cohort::deferred
