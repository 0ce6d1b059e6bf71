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
#include <vector>

namespace cohort::inference {

/// The sequences of one model, by their ids. A sequence's requests run one at a time, in the order
/// in which they came; those of different sequences do not wait for each other. A request that
/// starts a sequence begins with a new state, whatever there was. A sequence is over when a request
/// that ends it has run, or when none has come for a while. Time is told. Complexity: O(log n) of
/// the sequences, amortised. Thread safety: none.
/// @tparam Request Movable.  @tparam State Default-constructible: that of a sequence's beginning.
template <class Request, class State>
class sequence_table {
 public:
  struct options {
    duration idle = std::chrono::seconds{1};  ///< So long nobody need come; above 0.
    std::size_t most = 4096;                  ///< Sequences at a time; at least 1.
  };
  enum class entry : std::uint8_t {
    runs,     ///< It may run now. `leave` is called when it has.
    waits,    ///< For others of its sequence: `leave` gives it back.
    unknown,  ///< It starts nothing, and no such sequence is under way.
    full,     ///< It would start one too many.
  };
  /// Those whose turn it is after another one has run.
  struct turn {
    std::optional<Request> next;   ///< It runs: `leave` is called when it has.
    std::vector<Request> unknown;  ///< As `entry::unknown`: the sequence ended before them.
  };

  explicit sequence_table(const options& o) : options_{o} {}

  /// A request comes. @param r Moved from if it waits.
  entry enter(const std::string& id, bool starts, Request& r, time_point now) {
    forget_idle(now);
    auto at = sequences_.find(id);
    if (at == sequences_.end()) {
      if (!starts) return entry::unknown;
      if (sequences_.size() >= options_.most) return entry::full;
      at = sequences_.try_emplace(id).first;
    }
    sequence& s = at->second;
    if (s.is_busy) {
      s.waiting.emplace_back(std::move(r), starts);
      return entry::waits;
    }
    if (s.has_begun) idle_.erase(s.idle);
    begin(s, starts);
    return entry::runs;
  }

  /// What the request of this sequence that runs has found, and changes.
  [[nodiscard]] State& state(const std::string& id) { return sequences_.find(id)->second.state; }

  /// The request of this sequence that ran has ended. @param ends It was to end the sequence.
  [[nodiscard]] turn leave(const std::string& id, bool ends, time_point now) {
    const auto at = sequences_.find(id);
    sequence& s = at->second;
    turn t;
    s.is_busy = false;
    s.has_begun = !ends;
    while (!s.waiting.empty() && !t.next) {
      auto [r, starts] = std::move(s.waiting.front());
      s.waiting.pop_front();
      if (!starts && !s.has_begun) {
        t.unknown.push_back(std::move(r));
        continue;
      }
      begin(s, starts);
      t.next = std::move(r);
    }
    if (s.is_busy) return t;
    if (s.has_begun) {
      s.idle = idle_.emplace(idle_.end(), now, &at->first);
    } else {
      sequences_.erase(at);
    }
    return t;
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
    idle_list::iterator idle;                      // If none runs.
  };

  static void begin(sequence& s, bool starts) {
    if (starts) s.state = State{};
    s.has_begun = true;
    s.is_busy = true;
  }
  void forget_idle(time_point now) {
    while (!idle_.empty() && idle_.front().first + options_.idle <= now) {
      sequences_.erase(sequences_.find(*idle_.front().second));
      idle_.pop_front();
    }
  }

  options options_;
  std::map<std::string, sequence> sequences_;
  idle_list idle_;  // Who has waited longest first.
};

}  // namespace cohort::inference
