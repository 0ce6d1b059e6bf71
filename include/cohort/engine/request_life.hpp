// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an engine treats a request from submission to end: assertions against changes by callers,
/// retries, the outcome, and the report of a drain.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cohort::engine {

/// Marks each request that an engine takes, to assert that the same engine has it and that its
/// public fields are unchanged. No effect without assertions. O(1).
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

/// Whether a request of a failed or hung batch may wait for another one, if time allows: its model
/// is repeatable, it is not cancelled, its own values are not to blame, no device hung with it, and
/// no second device failed it.
/// @param retries Maximum number of retries.
[[nodiscard]] inline bool may_run_again(const request& r, bool failed, bool is_repeatable,
                                        std::uint32_t retries) noexcept {
  return failed && is_repeatable && !r.is_unfit && !r.is_spent && !r.cancel_requested &&
         r.attempts < retries;
}

/// The outcome of a request that is not retried. Completion wins over a cancellation that was not
/// yet seen. @param judged_at When its deadline is judged.
[[nodiscard]] inline outcome how_it_ended(const request& r, bool failed,
                                          time_point judged_at) noexcept {
  if (r.cancel_requested) return outcome::cancelled;
  if (failed) return outcome::failed;
  return judged_at <= r.deadline ? outcome::completed : outcome::late;
}

/// A snapshot; a server's last line prints it as `left N requests and M devices that hang`.
struct drain_report {
  std::size_t requests = 0;         ///< Accepted and without an outcome yet.
  std::size_t hanging_devices = 0;  ///< Still holding a batch: the backend's destructor
                                    ///< waits for them.

  [[nodiscard]] constexpr bool is_clean() const noexcept {
    return requests == 0 && hanging_devices == 0;
  }
  friend constexpr bool operator==(const drain_report&, const drain_report&) = default;
};

}  // namespace cohort::engine
