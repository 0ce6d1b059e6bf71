// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sequences of requests of one model, each with a state that goes from one request to the next:
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

/// The sequences of one model, by their ids. A sequence's requests run one at a time, in the order
/// in which they came; those of different sequences do not wait for each other. Only a request that
/// was computed changes its sequence: it begins or ends it, or leaves another state. A sequence is
/// also over when no request has come for a while. Time is told. Complexity: O(log n) of the
/// sequences, amortised. Thread safety: none.
/// @tparam Request Movable without exceptions.  @tparam State Default-constructible.
template <class Request, class State>
class sequence_table {
 public:
  struct options {
    duration idle = std::chrono::seconds{1};  ///< So long nobody need come; above 0.
    std::size_t most = 4096;                  ///< Sequences at a time; at least 1.
    std::size_t most_waiting = 1024;          ///< Requests that wait at a time; at least 1.
  };
  enum class entry : std::uint8_t {
    runs,     ///< It may run now. `leave` is called when it has.
    waits,    ///< For others of its sequence: `leave` or `next` gives it back.
    unknown,  ///< It starts nothing, and no such sequence is under way.
    full,     ///< It would start, or wait, as one too many.
  };
  /// One that waited, now that others of its sequence have left.
  struct turn {
    std::optional<Request> request{};  ///< None: nobody waits.
    bool runs = false;  ///< `leave` is called when it has. Else as `entry::unknown`; then `next`.
  };

  explicit sequence_table(const options& o) : options_{o} {}

  /// A request comes. If an exception leaves this, nothing has changed.
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

  /// What the last computed request of this sequence has left. A request that starts it begins
  /// without.
  [[nodiscard]] State& state(const std::string& id) { return sequences_.find(id)->second.state; }

  /// The request of this sequence that ran has left. @param ends It was to end the sequence.
  [[nodiscard]] turn leave(const std::string& id, bool is_computed, bool ends,
                           time_point now) noexcept {
    sequence& s = sequences_.find(id)->second;
    s.is_busy = false;
    if (is_computed) s.has_begun = !ends;
    if (is_computed && ends) s.state = State{};
    return next(id, now);
  }
  /// After a `turn` whose request does not run.
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

  /// Ends those that were idle for too long.
  void forget_idle(time_point now) noexcept {
    while (!idle_.empty() && idle_.front().first + options_.idle <= now) {
      const auto over = sequences_.find(*idle_.front().second);
      idle_.pop_front();
      sequences_.erase(over);
    }
  }

  /// Sequences under way.
  [[nodiscard]] std::size_t size() const noexcept { return sequences_.size(); }

 private:
  using idle_list = std::list<std::pair<time_point, const std::string*>>;  // Since when; the id.
  struct sequence {
    State state{};
    bool is_busy = false;                          // A request runs.
    bool has_begun = false;                        // Else who comes next has to start it.
    std::deque<std::pair<Request, bool>> waiting;  // And whether it starts the sequence.
    idle_list place;                               // Its own in `idle_`, while it is not there.
    idle_list::iterator idle{};                    // There.
  };

  options options_;
  std::map<std::string, sequence> sequences_;
  idle_list idle_;  // Who has waited longest first.
  std::size_t waiting_ = 0;
};

}  // namespace cohort::inference
