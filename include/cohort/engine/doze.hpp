// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which arrivals a loop may sleep through: `doze`.
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

/// A loop that sleeps need not see a request that comes as long as nothing would follow from it
/// before the loop wakes. What would follow the scheduler says, of the request and of those of its
/// model that came before and have not been seen either. So each is judged once, by who submits it:
/// the loop sleeps, and its scheduler holds still. Cost: O(1) an arrival, no allocation but at the
/// start. Thread safety: none; the inbox's lock sees to it.
class doze {
 public:
  /// Who cannot be served is to hear of it within this.
  static constexpr duration longest_doubt = std::chrono::milliseconds{1};

  explicit doze(std::uint32_t max_models) : models_(max_models) { lost_.fill(distant_past); }

  /// A sleep begins, which ends at `until` whatever comes. @returns Until when arrivals may be
  /// judged by `matters`, and `distant_past` if each is to wake the loop.
  template <class Scheduler>
  time_point begin(const Scheduler& s, time_point now, time_point until) noexcept {
    if constexpr (deferred::patient_scheduler<Scheduler>) {
      ++sleeps_;
      note_when_lost(now);
      until_ = std::min(until, s.quiet_until(now));
      doubt_ = now + longest_doubt;
      // Who comes is judged by whether it would be dropped, or refused as those before it; what
      // cannot be told so is looked at in time.
      if ((std::exchange(had_doubt_, false) || may_refuse(now)) && s.is_scarce()) {
        until_ = std::min(until_, doubt_);
      }
      return until_ > now ? until_ : distant_past;
    } else {
      return distant_past;
    }
  }

  /// A request came: whether the loop must see it before the sleep is over.
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

  /// A request of a model with this SLO was dropped or refused, or failed, perhaps as it was
  /// dropped when it waited again. Not while it sleeps.
  void note_lost(duration slo) noexcept {
    slo_ = std::max(slo_, slo);
    ++newly_lost_;
  }

 private:
  struct model {
    std::uint64_t sleep = 0;  // In which they came.
    deferred::unseen_requests unseen{};
  };

  void note_when_lost(time_point now) noexcept {
    for (std::size_t n = std::min(newly_lost_, lost_.size()); n > 0; --n) {
      lost_[oldest_] = now;
      oldest_ = (oldest_ + 1) % lost_.size();
    }
    newly_lost_ = 0;
  }
  /// Whether a model may be overloaded, so that who comes may be refused.
  [[nodiscard]] bool may_refuse(time_point now) const noexcept {
    // What was lost counts for up to three of its periods.
    return now - lost_[oldest_] <= 3 * early_refusal::memory * slo_;
  }

  std::vector<model> models_;
  std::uint64_t sleeps_ = 0;
  time_point until_ = distant_past;  // The end of the sleep.
  time_point doubt_ = distant_past;  // Who cannot be served is to hear of it by then.
  /// When the last requests were lost: with fewer no model counts as overloaded.
  std::array<time_point, early_refusal::least> lost_;
  std::size_t oldest_ = 0;
  std::size_t newly_lost_ = 0;  // Since the last sleep.
  duration slo_{0};             // The longest of their models.
  bool had_doubt_ = false;      // The last sleep ended for somebody who may be dropped.
};

}  // namespace cohort::engine
