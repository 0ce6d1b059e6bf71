// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requests of a run in virtual time, including which are open.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/request.hpp>

#include <deque>
#include <source_location>
#include <string>

namespace cohort::sim {

/// A scheduler lost a request: it never ends, nor does the run. The message names the request.
class lost_request : public error {
 public:
  explicit lost_request(const std::string& what,
                        std::source_location where = std::source_location::current())
      : error{what, where} {}
};

/// Creates requests when needed, and reuses ended ones. Requests do not move. Thread safety: none.
class request_pool {
 public:
  /// Returns a request that is open from now on. The caller fills its fields.
  [[nodiscard]] request& take() {
    if (idle_.empty()) idle_.push_back(all_.emplace_back());
    auto& r = static_cast<pooled&>(idle_.front());
    idle_.pop_front();
    r.is_open = true;
    return r;
  }
  /// Takes back an open request of this pool that has ended.
  void give_back(request& r) noexcept {
    auto& ended = static_cast<pooled&>(r);
    COHORT_ASSERT(ended.is_open);  // Otherwise it has ended twice.
    ended.is_open = false;
    idle_.push_back(ended);
  }
  /// The open request that arrived first, or null. O(requests made).
  [[nodiscard]] const request* oldest_open() const noexcept {
    const pooled* oldest = nullptr;
    for (const pooled& r : all_) {
      if (r.is_open && (oldest == nullptr || r.arrival < oldest->arrival)) oldest = &r;
    }
    return oldest;
  }

 private:
  struct pooled final : request {
    bool is_open = false;
  };
  std::deque<pooled> all_;
  request_list idle_;
};

}  // namespace cohort::sim
