// SPDX-License-Identifier: Apache-2.0
/// @file
/// Devices, timers and matching: the half of deferred scheduling that sees devices.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/indexed_heap.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/device_set.hpp>
#include <cohort/deferred/pool_meter.hpp>
#include <cohort/deferred/sink.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// Binds candidates to devices. When a candidate's window opens, its model timer takes the free
/// device with the smallest id; if none is free the candidate waits, and the next device to become
/// free takes the waiting candidate with the smallest urgency. So load settles on the small ids and
/// the large ones idle. With a lead (network delay, wake margin) a device counts as free that much
/// before its batch is expected to end; one that overruns is free when its end is told.
/// A value: owns no thread, reads no clock. It talks to a `rank_sink`, in `advance`. At most one
/// grant is outstanding for a model. At one instant, model timers come before devices, then the
/// order in which they were set. Cost: O(log models + devices / 64) a call, no allocation but in
/// `add_*`. Thread safety: none. Source: Symphony, Algorithm 1 and Appendix D.
class rank {
 public:
  /// Most batches on a device: one that runs and one sent ahead.
  static constexpr std::uint32_t max_outstanding = 2;

  /// Adds an idle device under an id that is not in use. Allocates.
  void add_device(device_id d, time_point now) {
    if (d.index() >= devices_.size()) {
      devices_.resize(d.index() + 1);
      idle_.resize(d.index() + 1);
      ending_.resize(d.index() + 1);
    }
    COHORT_ASSERT(!devices_[d.index()].present && devices_[d.index()].outstanding == 0);
    measure(now);
    devices_[d.index()] = device{};
    devices_[d.index()].present = true;
    ++present_;
    make_available(d);
  }

  /// Takes a device away: it gets no more work; what it has still ends by `on_complete`.
  void remove_device(device_id d, time_point now) noexcept {
    measure(now);
    devices_[d.index()].present = false;
    --present_;
    idle_.erase(d);
    ending_.disarm(d.index());
  }

  /// Makes room for models with ids below `count`. Allocates.
  void reserve_models(std::size_t count) {
    if (count <= models_.size()) return;
    models_.resize(count);
    opening_.resize(count);
    waiting_.resize(count);
    meter_.reserve_models(count);
  }

  [[nodiscard]] std::size_t devices() const noexcept { return present_; }
  [[nodiscard]] std::size_t idle_devices() const noexcept { return idle_.size(); }
  [[nodiscard]] bool has_device(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].present;
  }
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    return devices_[d.index()].outstanding;
  }
  /// Share of device time without work, over about the last quarter second; 1 at the start.
  [[nodiscard]] double idle_fraction() const noexcept { return meter_.idle_fraction(); }

  /// The model's candidate is now `c`; an empty one removes it. Acted upon by `advance`.
  void on_candidate(model_id id, const candidate& c, time_point now) noexcept {
    model& m = models_[id.index()];
    m.best = c;
    if (!m.granted) place(id, m, now);
  }

  /// The grant became a batch that starts at `exec_at` and should run for `expected`.
  void on_grant_used(model_id id, device_id d, time_point exec_at, duration expected,
                     time_point now) noexcept {
    device& dev = devices_[d.index()];
    measure(now);
    dev.reserved = false;
    COHORT_ASSERT(dev.outstanding < max_outstanding);
    ++dev.outstanding;
    dev.last_start = exec_at;
    dev.last_expected = expected;
    dev.free_at = exec_at + expected;
    meter_.on_batch(id, expected);
    make_available(d);
    answered(id, now);
  }

  /// The grant was not needed: the device is as before.
  void on_grant_returned(model_id id, device_id d, time_point now) noexcept {
    devices_[d.index()].reserved = false;
    make_available(d);
    answered(id, now);
  }

  /// The oldest batch of the device ended.
  void on_complete(device_id d, time_point now) noexcept {
    device& dev = devices_[d.index()];
    COHORT_ASSERT(dev.outstanding > 0);
    measure(now);
    --dev.outstanding;
    dev.free_at = dev.outstanding == 0 ? now : std::max(now, dev.last_start) + dev.last_expected;
    if (!dev.reserved) make_available(d);
  }

  /// Fires what is due: model timers, then devices.
  template <rank_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    // When a batch that overruns will end is not known: its device waits for the completion.
    while (ending_.next() < now) ending_.disarm(ending_.next_slot());
    for (;;) {
      if (const std::uint32_t slot = opening_.pop_due(now); slot != timer_queue::none) {
        const candidate& c = models_[slot].best;
        if (device_id d; find_device(c, now, d)) {
          give(model_id{slot}, d, now, sink);
        } else {
          waiting_.set(slot, c.urgency);
        }
        continue;
      }
      if (waiting_.empty()) return;
      const std::uint32_t first = waiting_.top();
      const candidate& c = models_[first].best;
      if (c.send_by() < now) {
        waiting_.erase(first);  // Too late; its shard is about to replace it.
        continue;
      }
      device_id d;
      if (!find_device(c, now, d)) return;
      give(model_id{first}, d, now, sink);
    }
  }

  /// When `advance` must be called next, or `never`. Completions also call for it.
  [[nodiscard]] time_point next_wake() const noexcept {
    time_point next = opening_.next();
    if (!waiting_.empty()) {
      const candidate& c = models_[waiting_.top()].best;
      if (!idle_.empty()) return std::min(next, c.send_at());
      if (c.lead > duration{0} && ending_.next() <= c.latest) {
        next = std::min(next, ending_.next() - c.lead);
      }
    }
    return next;
  }

 private:
  struct device {
    time_point free_at = distant_past;
    time_point last_start;  // Of the batch sent last.
    duration last_expected{0};
    std::uint32_t outstanding = 0;
    bool present = false;
    bool reserved = false;  // Granted, not yet answered.
  };

  struct model {
    candidate best;
    bool granted = false;
  };

  void make_available(device_id d) noexcept {
    const device& dev = devices_[d.index()];
    const bool usable = dev.present && !dev.reserved;
    if (usable && dev.outstanding == 0) {
      idle_.insert(d);
    } else {
      idle_.erase(d);
    }
    ending_.arm(d.index(), usable && dev.outstanding == 1 ? dev.free_at : never);
  }

  void place(model_id id, model& m, time_point now) noexcept {
    const std::size_t slot = id.index();
    if (m.best.is_empty()) {
      opening_.disarm(slot);
      waiting_.erase(slot);
    } else if (waiting_.contains(slot) && m.best.send_at() <= now) {
      if (waiting_.key(slot) != m.best.urgency) waiting_.set(slot, m.best.urgency);
    } else {
      waiting_.erase(slot);
      if (opening_.due(slot) != m.best.send_at()) opening_.arm(slot, m.best.send_at());
    }
  }

  void answered(model_id id, time_point now) noexcept {
    model& m = models_[id.index()];
    m.granted = false;
    place(id, m, now);
  }

  bool find_device(const candidate& c, time_point now, device_id& found) const noexcept {
    if (!idle_.empty()) {
      found = idle_.smallest();
      return true;
    }
    const time_point free_at = ending_.next();
    if (c.lead == duration{0} || free_at > std::max(c.exec_at, now + c.lead) ||
        free_at > c.latest) {
      return false;
    }
    found = device_id{ending_.next_slot()};
    return true;
  }

  template <rank_sink Sink>
  void give(model_id id, device_id d, time_point now, Sink& sink) noexcept {
    opening_.disarm(id.index());
    waiting_.erase(id.index());
    models_[id.index()].granted = true;
    device& dev = devices_[d.index()];
    dev.reserved = true;
    make_available(d);
    measure(now);
    sink.grant(cohort::deferred::grant{id, d, dev.free_at, meter_.view(present_)});
  }

  void measure(time_point now) noexcept { meter_.on_time(now, idle_.size(), present_); }

  std::vector<device> devices_;
  std::vector<model> models_;
  device_set idle_;                   // Present, not reserved, nothing outstanding.
  timer_queue ending_;                // By device: one batch outstanding, when it should end.
  timer_queue opening_;               // By model: when its window opens.
  indexed_heap<time_point> waiting_;  // By model: window open, no device; by urgency.
  std::size_t present_ = 0;
  pool_meter meter_;
};

}  // namespace cohort::deferred
