// SPDX-License-Identifier: Apache-2.0
/// @file
/// How an engine treats a request from its submission to its end: assertions that callers leave it
/// alone, whether it may run again, how it has ended, and what is left when the engine drains.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <atomic>
#include <cstddef>
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

/// Whether a request of a batch that failed or hangs may wait for another one, if there is time:
/// its model bears it, it is wanted, its own values are not to blame, and neither a device hung
/// with it nor did a second one fail it.
/// @param retries Most times that it may.
[[nodiscard]] inline bool may_run_again(const request& r, bool failed, bool is_repeatable,
                                        std::uint32_t retries) noexcept {
  return failed && is_repeatable && !r.is_unfit && !r.is_spent && !r.cancel_requested &&
         r.attempts < retries;
}

/// How a request has ended that does not run again. Completion wins over a cancellation that nobody
/// has seen. @param judged_at When its result is where deadlines are judged.
[[nodiscard]] inline outcome how_it_ended(const request& r, bool failed,
                                          time_point judged_at) noexcept {
  if (r.cancel_requested) return outcome::cancelled;
  if (failed) return outcome::failed;
  return judged_at <= r.deadline ? outcome::completed : outcome::late;
}

/// A snapshot; as a server's last line says it, `left N requests and M devices that hang`.
struct drain_report {
  std::size_t requests = 0;         ///< That were accepted and have no outcome yet.
  std::size_t hanging_devices = 0;  ///< That have not let go of a batch: who destroys the backend
                                    ///< waits for them.

  [[nodiscard]] constexpr bool is_clean() const noexcept {
    return requests == 0 && hanging_devices == 0;
  }
  friend constexpr bool operator==(const drain_report&, const drain_report&) = default;
};

}  // namespace cohort::engine
