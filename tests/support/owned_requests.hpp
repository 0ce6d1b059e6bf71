// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests that are gone when they end: `owned_requests`.
#pragma once

#include <cohort/core/request.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace cohort::test {

/// Owns each request on the heap. When its end is told it is destroyed and its memory overwritten
/// and freed, as sinks allow their callers: code that reads it afterwards is found by
/// AddressSanitizer, and without that, as a rule, by what it reads. What a test must know of a
/// request after its end it keeps itself. Thread safety: none.
/// @tparam Request Any type; default-constructible.
template <class Request = request>
class owned_requests {
 public:
  owned_requests() = default;
  owned_requests(const owned_requests&) = delete;
  owned_requests& operator=(const owned_requests&) = delete;
  ~owned_requests() {
    while (!live_.empty()) end(*live_.back());
  }

  /// A new one, which lives until its `end`.
  Request& add() {
    live_.reserve(live_.size() + 1);
    void* const memory = ::operator new(sizeof(Request), alignment);
    live_.push_back(new (memory) Request);
    return *live_.back();
  }
  /// The end of one that has not ended. O(those that live).
  void end(Request& r) noexcept {
    Request* const gone = &r;
    if (std::erase(live_, gone) == 0) {
      FAIL_CHECK("a request ended twice");
      return;
    }
    std::destroy_at(gone);
    std::memset(static_cast<void*>(gone), 0xA5, sizeof(Request));
    asm volatile("" : : "r"(gone) : "memory");  // Else the compiler leaves that out.
    ::operator delete(static_cast<void*>(gone), alignment);
  }
  /// Those that have not ended, in the order of `add`.
  [[nodiscard]] const std::vector<Request*>& live() const noexcept { return live_; }

 private:
  static constexpr std::align_val_t alignment{alignof(Request)};

  std::vector<Request*> live_;
};

}  // namespace cohort::test
