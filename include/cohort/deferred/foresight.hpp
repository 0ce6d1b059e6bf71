// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests that have come and that a scheduler has not been told of: `unseen_requests`, the
/// `patient_scheduler` that says whether they matter yet, and the `foresight` by which it does.
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

/// Requests of one model, in the order in which they came.
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

/// A scheduler that can say until when its driver may leave arrivals where they are.
/// * `quiet_until(now)`: when to look at them at the latest. It is a guess by the measured rates:
///   until then about as many should come as may. Any other instant is right, too.
/// * `may_wait(unseen, sends, drops)`: were these seen, nothing would be sent before `sends`, and
///   nobody dropped before `drops`, if the same holds for those that came before them and nothing
///   else happens. Pure: another thread may ask while the driver's sleeps.
/// * `is_scarce()`: a model has no free device, so that who comes may have to be refused.
/// Cost: O(log max_batch) and O(1), but `is_scarce` O(pools). Models: `basic_scheduler`,
/// `basic_pooled_scheduler`.
template <class S>
concept patient_scheduler = requires(const S& s, const unseen_requests& unseen, time_point t) {
  { s.quiet_until(t) } noexcept -> std::same_as<time_point>;
  { s.may_wait(unseen, t, t) } noexcept -> std::same_as<bool>;
  { s.is_scarce() } noexcept -> std::same_as<bool>;
};

/// Whether a gather policy takes the whole queue, up to the largest batch, and drops nobody, where
/// a batch of all would end by the first deadline. Of other policies nothing is foreseen.
template <class Gather>
inline constexpr bool takes_all_in_time = false;
template <>
inline constexpr bool takes_all_in_time<head> = true;
template <>
inline constexpr bool takes_all_in_time<drop_head> = true;

/// As a candidate tells it, of all who wait and some more.
struct foreseen {
  time_point send_at = distant_past;  ///< Not before this they are sent.
  time_point send_by =
      distant_past;  ///< Until then nobody is dropped; at least `send_at`, if told.
  duration lead{0};
};

/// Asks the window policy what it will be asked when more requests have come. That is exact until
/// the window opens: until then a batch of all is in time, so all are in it; and what the policy
/// knows of load and pool changes with batches, which others than arrivals bring about, and with
/// the ticks of the measured rate. What is not known counts as open. A value of references;
/// any thread, while nobody changes what it refers to. Source: none of the papers.
template <window_policy Window, gather_policy Gather>
class foresight {
 public:
  /// @param margin As the shard has it now.  @param idle_fraction As the policy would be told.
  foresight(const model_state& m, const Window& window, const network_delays& delays,
            duration margin, double idle_fraction) noexcept
      : m_{m}, window_{window}, delays_{delays}, margin_{margin}, idle_fraction_{idle_fraction} {}

  /// Of those who wait and `more`, one at least. O(1).
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
      // From its first request on it is asked again after a while, and may say otherwise.
      if (m_.queue.empty() && opens > first.arrival + Window::looks_again) opens = distant_past;
    }
    return {.send_at = opens - lead, .send_by = latest - delays_.before(size), .lead = lead};
  }

  /// When the window opens with as many more as come until about then, by the measured rate; of a
  /// model for which some wait. O(log max_batch).
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
