// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which arrivals a loop need not wake up for: `doze`.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/foresight.hpp>
#include <cohort/engine/early_refusal.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A sleeping loop need not see an arrival that changes nothing before it wakes. The scheduler
/// answers that for the request together with earlier unseen ones of its model. The submitting
/// thread asks once per request, while the loop sleeps and the scheduler does not change. Cost:
/// O(1) an arrival, allocates only at the start. Thread safety: none; the inbox's lock protects it.
class doze {
 public:
  /// A request that cannot be served is told so within this time.
  static constexpr duration longest_doubt = std::chrono::milliseconds{1};

  explicit doze(std::uint32_t max_models) : models_(max_models) { lost_.fill(distant_past); }

  /// Begins a sleep that ends at `until` in any case. @returns Time until which `matters` may judge
  /// arrivals, or `distant_past` if each must wake the loop.
  template <class Scheduler>
  time_point begin(const Scheduler& s, time_point now, time_point until) noexcept {
    if constexpr (deferred::patient_scheduler<Scheduler>) {
      ++sleeps_;
      note_when_lost(now);
      until_ = std::min(until, s.quiet_until(now));
      doubt_ = now + longest_doubt;
      // Arrivals are judged by whether they would be dropped, or refused like earlier ones; if that
      // is unknown, the loop looks at them in time.
      if ((std::exchange(had_doubt_, false) || may_refuse(now)) && s.is_scarce()) {
        until_ = std::min(until_, doubt_);
      }
      return until_ > now ? until_ : distant_past;
    } else {
      return distant_past;
    }
  }

  /// Whether the loop must see a new request before the sleep is over.
  template <class Scheduler>
  [[nodiscard]] bool matters(const Scheduler& s, const request& r) noexcept {
    if constexpr (deferred::patient_scheduler<Scheduler>) {
      model& m = models_[r.model.index()];
      if (m.sleep != sleeps_) m = {.sleep = sleeps_, .unseen = {.model = r.model}};
      m.unseen.add(r);
      if (!s.may_wait(m.unseen, until_, distant_past)) return true;
      if (until_ <= doubt_) return false;
      had_doubt_ = !s.may_wait(m.unseen, until_, until_);
      return had_doubt_;
    } else {
      return true;
    }
  }

  /// Notes that a request of a model with this SLO was refused, dropped or failed (a dropped retry
  /// counts as failed). Not while it sleeps.
  void note_lost(duration slo) noexcept {
    slo_ = std::max(slo_, slo);
    ++newly_lost_;
  }

 private:
  struct model {
    std::uint64_t sleep = 0;  // The sleep during their arrival.
    deferred::unseen_requests unseen{};
  };

  void note_when_lost(time_point now) noexcept {
    for (std::size_t n = std::min(newly_lost_, lost_.size()); n > 0; --n) {
      lost_[oldest_] = now;
      oldest_ = (oldest_ + 1) % lost_.size();
    }
    newly_lost_ = 0;
  }
  /// Whether a model may be overloaded, so that arrivals may be refused.
  [[nodiscard]] bool may_refuse(time_point now) const noexcept {
    // A loss counts for up to three of its periods.
    return now - lost_[oldest_] <= 3 * early_refusal::memory * slo_;
  }

  std::vector<model> models_;
  std::uint64_t sleeps_ = 0;
  time_point until_ = distant_past;  // The end of the sleep.
  time_point doubt_ = distant_past;  // Latest report to a request that cannot be served.
  /// Times of the last losses; a model with fewer does not count as overloaded.
  std::array<time_point, early_refusal::least> lost_;
  std::size_t oldest_ = 0;
  std::size_t newly_lost_ = 0;  // Since the last sleep.
  duration slo_{0};             // Longest of their models' SLOs.
  bool had_doubt_ = false;      // The last sleep ended for a request that may be dropped.
};

}  // namespace cohort::engine
