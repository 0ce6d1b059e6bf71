// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether callers leave alone the requests that an engine has: `request_watch`.
#pragma once

#include <cohort/core/request.hpp>

#include <atomic>
#include <cstdint>

namespace cohort::engine {

/// Marks each request that an engine takes, for assertions that the same engine has it and that
/// nobody has changed its public fields. Marks none without assertions. O(1).
class request_watch {
 public:
  void begin([[maybe_unused]] request& r) const noexcept {
#ifndef NDEBUG
    r.owner = name_;
    r.seal = seal_of(r);
#endif
  }
  [[nodiscard]] bool has(const request& r) const noexcept { return r.owner == name_; }
  [[nodiscard]] static bool is_unchanged(const request& r) noexcept { return r.seal == seal_of(r); }

 private:
  [[nodiscard]] static std::uint32_t seal_of(const request& r) noexcept {
    std::uint64_t x = r.model.value();
    for (const std::uint64_t field :
         {static_cast<std::uint64_t>(r.arrival.time_since_epoch().count()),
          static_cast<std::uint64_t>(r.deadline.time_since_epoch().count()),
          std::uint64_t{r.size} << 8U | r.priority}) {
      x = (x ^ field) * 0x9e3779b97f4a7c15ULL;
    }
    return static_cast<std::uint32_t>(x >> 32U);
  }
  [[nodiscard]] static std::uint32_t next_name() noexcept {
    static std::atomic<std::uint32_t> last{0};
    return ++last;
  }

  std::uint32_t name_ = next_name();
};

}  // namespace cohort::engine
