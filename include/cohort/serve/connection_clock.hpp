// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which time-out of a connection is due.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cohort::serve {

/// What a server waits for on one connection.
enum class awaited : std::uint8_t {
  nothing,  ///< The server itself is to act.
  request,  ///< The first byte of another request on a kept connection.
  header,   ///< The end of a header, from its first byte or from the connection's start.
  body,     ///< The rest of a body.
  taking,   ///< The client is to take bytes of an answer.
  silence,  ///< The client is answered, and is to stop sending.
};

/// Time limits of a connection. Durations are above 0.
struct connection_limits {
  duration request = std::chrono::seconds{75};
  duration header = std::chrono::seconds{10};
  duration body = std::chrono::seconds{10};    ///< Without any byte of a body.
  duration taking = std::chrono::seconds{10};  ///< Without any byte taken.
  duration silence = std::chrono::seconds{1};  ///< Without any byte of what is discarded.
  double bytes_per_s = 16 * 1024;              ///< Least average rate of both; 0: none.
};

/// Says when the client of one connection is too late. Requests and headers have one limit each.
/// Transfers (bodies, answers) have credit, which begins at their limit, runs out with time, and
/// grows with every byte by the time that the least rate gives it, up to the limit again. So a
/// transfer of n bytes that averages at least that rate is never late, one that stops is late after
/// its limit, and none lasts longer than the limit and n bytes at the least rate. What is
/// discarded has the credit of a body, and ends earlier if the client is silent.
///
/// A value: time is told. Thread safety: none. Complexity: O(1).
class connection_clock {
 public:
  /// @param limits Outlives the clock.
  explicit connection_clock(const connection_limits& limits) noexcept
      : limits_{&limits}, credit_{limits.taking} {}

  /// From `now` the server waits for `what`, with all of its limit.
  void await(awaited what, time_point now) noexcept {
    what_ = what;
    due_ = now + limit(what);
    silent_ = now + limits_->silence;
  }
  void stop() noexcept { what_ = awaited::nothing; }

  /// Another answer begins: it has all of its credit.
  void begin_answer() noexcept { credit_ = limits_->taking; }
  /// From `now` the client is to take bytes of the answer, with the credit that is left.
  void await_taking(time_point now) noexcept {
    what_ = awaited::taking;
    due_ = now + credit_;
  }
  /// The client has taken what there was: its credit stays until there is more.
  void stop_taking(time_point now) noexcept {
    credit_ = std::max(duration{0}, due_ - now);
    stop();
  }

  /// Bytes have come, or were taken.
  void moved(std::size_t bytes, time_point now) noexcept {
    if (bytes == 0 || what_ == awaited::nothing || what_ == awaited::header) return;
    if (what_ == awaited::request) return await(awaited::header, now);
    silent_ = now + limits_->silence;
    const time_point full = now + limit(what_);
    const double worth_ns = static_cast<double>(bytes) * 1e9 / limits_->bytes_per_s;
    if (worth_ns >= static_cast<double>((full - due_).count())) {  // Also with a rate of 0.
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
  duration credit_;  ///< Of the answer while nothing of it waits for the client.
};

}  // namespace cohort::serve
