// SPDX-License-Identifier: Apache-2.0
/// @file
/// Time-outs of a connection.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cohort::serve {

/// The event that a server waits for on a connection.
enum class awaited : std::uint8_t {
  nothing,  ///< The server itself must act.
  request,  ///< The first byte of another request on a kept connection.
  header,   ///< The end of a header, from its first byte or from the connection's start.
  body,     ///< The rest of a body.
  taking,   ///< The client must take bytes of an answer.
  silence,  ///< The client has its answer, and must stop sending.
};

/// Time limits of a connection. Durations are above 0.
struct connection_limits {
  duration request = std::chrono::seconds{75};
  duration header = std::chrono::seconds{10};
  duration body = std::chrono::seconds{10};    ///< Without any byte of a body.
  duration taking = std::chrono::seconds{10};  ///< Without any byte taken.
  duration silence = std::chrono::seconds{1};  ///< Without any byte to discard.
  double bytes_per_s = 16 * 1024;              ///< Minimum average rate of both; 0: none.
};

/// Decides when the client of one connection is too late. Requests and headers each have one limit.
/// Transfers (bodies, answers) have credit, which begins at their limit, runs out with time, and
/// grows with every byte by its time at the minimum rate, up to the limit. So a transfer that
/// averages at least that rate is never late, one that stops is late after its limit, and n bytes
/// take at most the limit plus their time at the minimum rate. Discarded data has the credit of a
/// body, and ends earlier if the client is silent.
///
/// A value: it is told the time. Thread safety: none. Complexity: O(1).
class connection_clock {
 public:
  /// @param limits Must outlive the clock.
  explicit connection_clock(const connection_limits& limits) noexcept
      : limits_{&limits}, credit_{limits.taking} {}

  /// From `now` the server waits for `what`, with its full limit.
  void await(awaited what, time_point now) noexcept {
    what_ = what;
    due_ = now + limit(what);
    silent_ = now + limits_->silence;
  }
  void stop() noexcept { what_ = awaited::nothing; }

  /// Begins another answer with full credit.
  void begin_answer() noexcept { credit_ = limits_->taking; }
  /// From `now` the client must take bytes of the answer, with the remaining credit.
  void await_taking(time_point now) noexcept {
    what_ = awaited::taking;
    due_ = now + credit_;
  }
  /// The client has taken all available bytes: its credit stays until there are more.
  void stop_taking(time_point now) noexcept {
    credit_ = std::max(duration{0}, due_ - now);
    stop();
  }

  /// Notes that bytes were received or taken.
  void moved(std::size_t bytes, time_point now) noexcept {
    if (bytes == 0 || what_ == awaited::nothing || what_ == awaited::header) return;
    if (what_ == awaited::request) return await(awaited::header, now);
    silent_ = now + limits_->silence;
    const time_point full = now + limit(what_);
    const double worth_ns = static_cast<double>(bytes) * 1e9 / limits_->bytes_per_s;
    if (worth_ns >= static_cast<double>((full - due_).count())) {  // Also for a rate of 0.
      due_ = full;
    } else {
      due_ += duration{static_cast<duration::rep>(worth_ns)};
    }
  }

  [[nodiscard]] awaited waits_for() const noexcept { return what_; }
  /// Whether the client is late.
  [[nodiscard]] bool is_late(time_point now) const noexcept {
    if (what_ == awaited::nothing) return false;
    return now >= due_ || (what_ == awaited::silence && now >= silent_);
  }

 private:
  [[nodiscard]] duration limit(awaited what) const noexcept {
    switch (what) {
      case awaited::request:
        return limits_->request;
      case awaited::header:
        return limits_->header;
      case awaited::taking:
        return limits_->taking;
      case awaited::body:
      case awaited::silence:
      case awaited::nothing:
        break;
    }
    return limits_->body;
  }

  const connection_limits* limits_;
  awaited what_ = awaited::nothing;
  time_point due_;
  time_point silent_;
  duration credit_;  ///< Credit of the answer while the client has all of it so far.
};

}  // namespace cohort::serve
