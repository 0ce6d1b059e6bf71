// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests that have arrived but were not yet given to a scheduler: `unseen_requests`, the
/// `patient_scheduler` that says whether they matter yet, and the `foresight` that it uses.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace cohort::deferred {

/// Requests of one model, in order of arrival.
struct unseen_requests {
  model_id model;
  std::uint32_t count = 0;
  const request* first = nullptr;  ///< The first of those with the earliest deadline.
  time_point last = distant_past;  ///< The latest `arrival` among them.

  void add(const request& r) noexcept {
    if (count++ == 0 || r.deadline < first->deadline) first = &r;
    last = std::max(last, r.arrival);
  }
};

/// A scheduler that can say how long its driver may delay delivering arrivals.
/// * `quiet_until(now)`: when to look at them at the latest. It is a guess from the measured rates:
///   about as many requests should arrive until then as may wait. Any other instant is also
///   correct.
/// * `may_wait(unseen, sends, drops)`: whether, if these were delivered, no batch would be sent
///   before `sends` and no request dropped before `drops`, provided that the same holds for earlier
///   ones and nothing else happens. Pure: another thread may ask while the driver's thread sleeps.
/// * `is_scarce()`: a model has no free device, so arriving requests may have to be refused. Cost:
///   O(log max_batch) and O(1), `is_scarce` O(pools). Models: `basic_scheduler`,
///   `basic_pooled_scheduler`.
template <class S>
concept patient_scheduler = requires(const S& s, const unseen_requests& unseen, time_point t) {
  { s.quiet_until(t) } noexcept -> std::same_as<time_point>;
  { s.may_wait(unseen, t, t) } noexcept -> std::same_as<bool>;
  { s.is_scarce() } noexcept -> std::same_as<bool>;
};

/// Whether a gather policy takes the whole queue, up to the largest batch, and drops no request if
/// a batch of all would end by the first deadline. Other policies are not predicted.
template <class Gather>
inline constexpr bool takes_all_in_time = false;
template <>
inline constexpr bool takes_all_in_time<head> = true;
template <>
inline constexpr bool takes_all_in_time<drop_head> = true;

/// The candidate expected for the waiting requests and some more.
struct foreseen {
  time_point send_at = distant_past;  ///< They are not sent before this.
  time_point send_by =
      distant_past;  ///< No request is dropped before this; at least `send_at` if known.
  duration lead{0};
};

/// Asks the window policy in advance for its answer once more requests have arrived. That is exact
/// until the window opens: until then a batch of all requests is in time, so it contains them all.
/// The policy's knowledge of load and pool changes only with batches, which arrivals do not cause,
/// and with the ticks of the measured rate. If the answer is not known, the window counts as open.
/// A value of references; any thread, while their objects do not change. Source: none of the
/// papers.
template <window_policy Window, gather_policy Gather>
class foresight {
 public:
  /// @param margin The shard's present wake margin.  @param idle_fraction As passed to the policy.
  foresight(const model_state& m, const Window& window, const network_delays& delays,
            duration margin, double idle_fraction) noexcept
      : m_{m}, window_{window}, delays_{delays}, margin_{margin}, idle_fraction_{idle_fraction} {}

  /// Predicts for the waiting requests and `more`, together at least one. O(1).
  [[nodiscard]] foreseen with(const unseen_requests& more) const noexcept {
    const latency_curve& run = m_.latency.run();
    const std::uint32_t size = std::min(m_.queue.size() + more.count, run.max_batch());
    const duration lead = delays_.before(size) + margin_;
    if (!takes_all_in_time<Gather> || (more.count > 0 && m_.rate.ticks_by(more.last))) {
      return {.lead = lead};
    }
    const bool is_first =
        more.first != nullptr && (m_.queue.empty() || due(*more.first) < m_.queue.deadline(0));
    const request& first = is_first ? *more.first : m_.queue[0];
    const batch_view view =
        m_.view_of(size, m_.aim(due(first), first), first.arrival, idle_fraction_);
    const time_point latest = due(first) - view.latency;
    time_point opens = std::min(latest, window_.opens(view));
    if (m_.longest_wait != unbounded) opens = std::min(opens, first.arrival + m_.longest_wait);
    if constexpr (following_pool<Window>) {
      // The policy is asked again some time after the first arrival, and may answer differently.
      if (m_.queue.empty() && opens > first.arrival + Window::looks_again) opens = distant_past;
    }
    return {.send_at = opens - lead, .send_by = latest - delays_.before(size), .lead = lead};
  }

  /// When the window opens if requests keep arriving at the measured rate until about then; the
  /// model must have waiting requests. O(log max_batch).
  [[nodiscard]] time_point opening_by_rate(time_point now) const noexcept {
    const double rate = m_.load.rate;
    const std::uint32_t most = m_.latency.run().max_batch();
    std::uint32_t low = 0;
    std::uint32_t high = rate > 0 ? most - std::min(m_.queue.size(), most) : 0;
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (opening_with(middle, now) >= now + from_seconds((middle + 1) / rate)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low == 0 ? m_.published.send_at() : opening_with(low, now);
  }

 private:
  [[nodiscard]] time_point due(const request& r) const noexcept {
    return r.deadline - delays_.after();
  }
  [[nodiscard]] time_point opening_with(std::uint32_t more, time_point now) const noexcept {
    return with({.model = {}, .count = more, .last = now}).send_at;
  }

  const model_state& m_;
  const Window& window_;
  const network_delays& delays_;
  duration margin_;
  double idle_fraction_;
};

}  // namespace cohort::deferred
