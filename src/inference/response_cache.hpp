// SPDX-License-Identifier: Apache-2.0
/// @file
/// A cache of answers to equal requests: `response_cache`.
#pragma once

#include <cohort/runtime/shaped_tensor.hpp>

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::inference {

/// Caches the outputs of requests by key, with a limit on bytes; the least recently used entries
/// are evicted. Whole keys are compared, so unequal requests never share an entry. Complexity:
/// O(log n) comparisons of keys. Thread safety: none.
class response_cache {
 public:
  using outputs = std::vector<runtime::shaped_tensor>;

  /// Overhead of an entry and of each of its tensors, besides the key and the values.
  static constexpr std::size_t entry_bytes = 256;
  static constexpr std::size_t tensor_bytes = 128;

  /// @param capacity Maximum bytes of all entries; 0: no cache.
  explicit response_cache(std::size_t capacity) noexcept : capacity_{capacity} {}
  response_cache(const response_cache&) = delete;
  response_cache& operator=(const response_cache&) = delete;

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return by_key_.size(); }

  /// Memory that an entry takes.
  [[nodiscard]] static std::size_t bytes_of(std::string_view key, const outputs& values) noexcept {
    std::size_t bytes = entry_bytes + key.size() + values.size() * tensor_bytes;
    for (const runtime::shaped_tensor& t : values) bytes += t.bytes.size();
    return bytes;
  }

  /// The outputs with this key, which become the most recently used; null if there are none. Valid
  /// until the next `insert`.
  [[nodiscard]] const outputs* find(std::string_view key) noexcept {
    const auto at = by_key_.find(key);
    if (at == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, at->second);
    return &at->second->values;
  }

  /// Inserts outputs, unless they are larger than the cache or the key exists. If this throws,
  /// entries may have been evicted, and nothing else has changed.
  /// @param values Each must own its memory.
  void insert(std::string key, outputs values) {
    if (find(key) != nullptr) return;
    const std::size_t bytes = bytes_of(key, values);
    if (bytes > capacity_) return;
    while (bytes_ > capacity_ - bytes) {
      bytes_ -= entries_.back().bytes;
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
    std::list<entry> made;
    made.push_back({std::move(key), std::move(values), bytes});
    by_key_.emplace(made.front().key, made.begin());
    entries_.splice(entries_.begin(), made);
    bytes_ += bytes;
  }

 private:
  struct entry {
    std::string key;
    outputs values;
    std::size_t bytes;
  };

  std::size_t capacity_;
  std::size_t bytes_ = 0;
  std::list<entry> entries_;  // Most recently used first.
  std::map<std::string_view, std::list<entry>::iterator> by_key_;
};

}  // namespace cohort::inference
