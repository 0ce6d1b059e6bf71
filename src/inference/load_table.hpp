// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which loads of models are waiting, running or abandoned: `load_table`.
#pragma once

#include <cohort/core/time.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::inference {

/// Limits on loads.
struct load_limits {
  duration time = unbounded;  ///< From the request of a load to its end; `unbounded`: no limit.
  duration slow = std::chrono::seconds{10};  ///< From the request until a running load is slow.
  std::size_t at_once = 8;                   ///< Maximum number of running loads.
  std::size_t abandoned = 32;  ///< Maximum number of abandoned loads that have not ended.
};

/// Decides when loads begin and when they are abandoned. A model has at most one load. No caller
/// waits for an abandoned load, but its model cannot be loaded again until it has ended. Reads no
/// clock and owns no thread. Thread safety: none. Complexity: O(loads).
class load_table {
 public:
  explicit load_table(load_limits limits) : limits_{limits} {}

  enum class phase : std::uint8_t { waiting, running, abandoned };
  struct load {
    phase is = phase::waiting;
    time_point since{};  ///< When it was requested.
    bool is_slow = false;
  };
  struct objection {
    int status;  ///< HTTP status.
    std::string why;
  };

  /// Why a load may not be requested now; nothing if it may.
  [[nodiscard]] std::optional<objection> against(const std::string& name, time_point now) const {
    if (const auto at = loads_.find(name); at != loads_.end()) {
      const double seconds = to_seconds(now - at->second.since);
      if (at->second.is != phase::abandoned) {
        return objection{409, fmt::format("model '{}' is being loaded, for {:.0f} s so far: ask "
                                          "again when that has ended",
                                          name, seconds)};
      }
      return objection{409, fmt::format("model '{}': a load of it that was abandoned has not ended "
                                        "after {:.0f} s: ask again when it has, or restart the "
                                        "server",
                                        name, seconds)};
    }
    if (count(phase::abandoned) >= limits_.abandoned) {
      return objection{503, fmt::format("{} loads that were abandoned have not ended: restart the "
                                        "server to load more models",
                                        limits_.abandoned)};
    }
    return std::nullopt;
  }
  /// Requests a load; `against` must have returned nothing.
  void ask(const std::string& name, time_point now) {
    loads_[name] = {.is = phase::waiting, .since = now};
  }
  /// Starts the waiting load that was requested first; nothing if none may start.
  [[nodiscard]] std::optional<std::string> begin() {
    if (count(phase::running) >= limits_.at_once) return std::nullopt;
    auto first = loads_.end();
    for (auto at = loads_.begin(); at != loads_.end(); ++at) {
      if (at->second.is != phase::waiting) continue;
      if (first == loads_.end() || at->second.since < first->second.since) first = at;
    }
    if (first == loads_.end()) return std::nullopt;
    first->second.is = phase::running;
    return first->first;
  }
  /// Abandons a load. @returns Whether a caller was waiting for it.
  bool abandon(const std::string& name) {
    const auto at = loads_.find(name);
    if (at == loads_.end() || at->second.is == phase::abandoned) return false;
    if (at->second.is == phase::waiting) {
      loads_.erase(at);
    } else {
      at->second.is = phase::abandoned;
    }
    return true;
  }
  /// Loads that have exceeded the time limit and must be abandoned.
  [[nodiscard]] std::vector<std::string> overdue(time_point now) const {
    std::vector<std::string> over;
    for (const auto& [name, l] : loads_) {
      if (is_bounded(l) && now - l.since >= limits_.time) over.push_back(name);
    }
    return over;
  }
  /// Running loads that have become slow; returns each once.
  [[nodiscard]] std::vector<std::string> slow(time_point now) {
    std::vector<std::string> all;
    for (auto& [name, l] : loads_) {
      if (!may_slow(l) || now - l.since < limits_.slow) continue;
      l.is_slow = true;
      all.push_back(name);
    }
    return all;
  }
  /// When the next load becomes overdue or slow; nothing: never.
  [[nodiscard]] std::optional<time_point> next() const {
    std::optional<time_point> first;
    for (const auto& [name, l] : loads_) {
      for (const auto& [is_due, after] :
           {std::pair{is_bounded(l), limits_.time}, std::pair{may_slow(l), limits_.slow}}) {
        if (is_due) first = std::min(first.value_or(l.since + after), l.since + after);
      }
    }
    return first;
  }
  /// A running load has ended. @returns Its last state.
  load end(const std::string& name) {
    const load was = loads_.at(name);
    loads_.erase(name);
    return was;
  }

  /// Null if there is none.
  [[nodiscard]] const load* find(const std::string& name) const {
    const auto at = loads_.find(name);
    return at == loads_.end() ? nullptr : &at->second;
  }
  [[nodiscard]] std::size_t count(phase is) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(loads_, [is](const auto& l) { return l.second.is == is; }));
  }
  /// Names of the loads that have not been abandoned.
  [[nodiscard]] std::vector<std::string> wanted() const {
    std::vector<std::string> all;
    for (const auto& [name, l] : loads_) {
      if (l.is != phase::abandoned) all.push_back(name);
    }
    return all;
  }

 private:
  [[nodiscard]] bool is_bounded(const load& l) const noexcept {
    return l.is != phase::abandoned && limits_.time != unbounded;
  }
  [[nodiscard]] bool may_slow(const load& l) const noexcept {
    return l.is == phase::running && !l.is_slow && limits_.slow != unbounded;
  }

  load_limits limits_;
  std::map<std::string, load> loads_;
};

}  // namespace cohort::inference
