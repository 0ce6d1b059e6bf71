// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sequences of requests to one model, each with a state that passes from request to request:
/// `sequence_table`.
#pragma once

#include <cohort/core/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace cohort::inference {

/// The sequences of one model, by id. The requests of a sequence run one at a time, in order of
/// arrival; different sequences are independent. Only a request that was computed changes its
/// sequence: it begins it, ends it, or sets its state. A sequence also ends when it has been idle
/// for too long. The caller passes the time. Complexity: O(log n) in the number of sequences,
/// amortised. Thread safety: none.
/// @tparam Request Movable without exceptions. @tparam State Default-constructible.
template <class Request, class State>
class sequence_table {
 public:
  struct options {
    duration idle = std::chrono::seconds{1};  ///< Maximum idle time; above 0.
    std::size_t most = 4096;                  ///< Maximum number of sequences; at least 1.
    std::size_t most_waiting = 1024;          ///< Maximum number of waiting requests; at least 1.
  };
  enum class entry : std::uint8_t {
    runs,     ///< It may run now. Call `leave` when it has ended.
    waits,    ///< For its sequence: `leave` or `next` returns it.
    unknown,  ///< It does not start a sequence, and its id is unknown.
    full,     ///< It would exceed a limit.
  };
  /// The next waiting request of a sequence, after another one has left.
  struct turn {
    std::optional<Request> request{};  ///< None: no request waits.
    bool runs = false;  ///< Then call `leave` at its end. Else it is `entry::unknown`: call `next`.
  };

  explicit sequence_table(const options& o) : options_{o} {}

  /// A request arrives. If this throws, nothing has changed.
  /// @param r Moved from if it waits.
  entry enter(const std::string& id, bool starts, Request& r, time_point now) {
    forget_idle(now);
    auto at = sequences_.find(id);
    if (at == sequences_.end()) {
      if (!starts) return entry::unknown;
      if (sequences_.size() >= options_.most) return entry::full;
      sequence fresh;
      fresh.place.emplace_back();
      at = sequences_.emplace(id, std::move(fresh)).first;
      at->second.place.front().second = &at->first;
    }
    sequence& s = at->second;
    if (s.is_busy) {
      if (waiting_ >= options_.most_waiting) return entry::full;
      s.waiting.emplace_back(std::move(r), starts);
      ++waiting_;
      return entry::waits;
    }
    if (s.place.empty()) s.place.splice(s.place.end(), idle_, s.idle);
    s.is_busy = true;
    return entry::runs;
  }

  /// The state that the last computed request of this sequence left. A request that starts the
  /// sequence ignores it.
  [[nodiscard]] State& state(const std::string& id) { return sequences_.find(id)->second.state; }

  /// The running request of this sequence has ended. @param ends It was to end the sequence.
  [[nodiscard]] turn leave(const std::string& id, bool is_computed, bool ends,
                           time_point now) noexcept {
    sequence& s = sequences_.find(id)->second;
    s.is_busy = false;
    if (is_computed) s.has_begun = !ends;
    if (is_computed && ends) s.state = State{};
    return next(id, now);
  }
  /// The next request, after a `turn` with a request that does not run.
  [[nodiscard]] turn next(const std::string& id, time_point now) noexcept {
    const auto at = sequences_.find(id);
    sequence& s = at->second;
    if (!s.waiting.empty()) {
      auto [r, starts] = std::move(s.waiting.front());
      s.waiting.pop_front();
      --waiting_;
      s.is_busy = starts || s.has_begun;
      return {std::move(r), s.is_busy};
    }
    if (s.has_begun) {
      s.place.front().first = now;
      s.idle = s.place.begin();
      idle_.splice(idle_.end(), s.place);
    } else {
      sequences_.erase(at);
    }
    return {};
  }

  /// Ends sequences that have been idle for too long.
  void forget_idle(time_point now) noexcept {
    while (!idle_.empty() && idle_.front().first + options_.idle <= now) {
      const auto over = sequences_.find(*idle_.front().second);
      idle_.pop_front();
      sequences_.erase(over);
    }
  }

  /// Number of sequences under way.
  [[nodiscard]] std::size_t size() const noexcept { return sequences_.size(); }

 private:
  using idle_list = std::list<std::pair<time_point, const std::string*>>;  // Start of idleness; id.
  struct sequence {
    State state{};
    bool is_busy = false;                          // A request runs.
    bool has_begun = false;                        // Else the next request must start it.
    std::deque<std::pair<Request, bool>> waiting;  // And whether it starts the sequence.
    idle_list place;                               // Its node, while not in `idle_`.
    idle_list::iterator idle{};                    // Its place in `idle_`.
  };

  options options_;
  std::map<std::string, sequence> sequences_;
  idle_list idle_;  // Longest idle first.
  std::size_t waiting_ = 0;
};

}  // namespace cohort::inference
