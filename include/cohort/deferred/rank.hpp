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
#include <cohort/deferred/device_entries.hpp>
#include <cohort/deferred/pool_meter.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::deferred {

/// Assigns candidates to devices. A device of capacity c has c entries and runs one batch in each
/// at a time. When a candidate's window opens, its model timer takes an entry of the free device
/// with the fewest running batches, then the smallest id. If none is free the candidate waits; the
/// next entry to become free takes the waiting candidate with the smallest urgency. So work settles
/// on small ids, and devices with large ids idle. With a lead (network delay, wake margin) an entry
/// counts as free that long before its batch is expected to end; if the batch overruns, the entry
/// is free once the end is reported. Each entry may thus have one batch sent ahead, which covers
/// every batch end that falls into one lead. A value: owns no thread, reads no clock. It talks to a
/// `rank_sink`, in `advance`. A model has at most one outstanding grant. At one instant, model
/// timers come before devices, then the order in which they were set. Cost: O(log models + devices
/// / 64 + capacity) a call, no allocation except in `add_*` and `reserve_models`. Thread safety:
/// none. Source: Symphony, Algorithm 1 and Appendix D.
class rank {
 public:
  /// Maximum batches in an entry: one running and one sent ahead.
  static constexpr std::uint32_t entry_depth = device_entries::depth;

  /// Adds an idle device under an id that is not in use. Allocates.
  /// @param capacity Number of batches it may run at one time; at least 1.
  void add_device(device_id d, time_point now, std::uint32_t capacity = 1) {
    measure(now);
    entries_.add(d, capacity);
  }
  /// Takes a device away: it gets no more work; report the end of its batches by `on_complete`.
  void remove_device(device_id d, time_point now) noexcept {
    measure(now);
    entries_.remove(d);
  }
  /// Suspends or resumes work for a present device. Its batches still end.
  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    COHORT_ASSERT(entries_.has(d));
    if (entries_.is_in_service(d) == is_in_service) return;
    measure(now);
    entries_.set_in_service(d, is_in_service);
  }
  /// Whether an entry may get a batch before the end of its running one is reported. On by default.
  void send_ahead(bool on) noexcept { entries_.send_ahead(on); }
  [[nodiscard]] bool sends_ahead() const noexcept { return entries_.sends_ahead(); }
  /// Marks a device as slower than others, or failing: it is chosen after devices with as few
  /// batches.
  void set_slow(device_id d, bool is_slow) noexcept { entries_.set_slow(d, is_slow); }

  /// Makes room for models with ids below `count`. Allocates.
  void reserve_models(std::size_t count) {
    if (count <= models_.size()) return;
    models_.resize(count);
    opening_.resize(count);
    waiting_.resize(count);
    meter_.reserve_models(count);
  }

  [[nodiscard]] std::size_t devices() const noexcept { return entries_.devices(); }
  /// Number of batches that the devices in service may run at one time.
  [[nodiscard]] std::size_t entries() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t idle_entries() const noexcept { return entries_.idle(); }
  /// When an entry should be free: `distant_past` if one is, `never` if nothing is running.
  [[nodiscard]] time_point next_free() const noexcept {
    return entries_.idle() > 0 ? distant_past : entries_.next_end();
  }
  /// The model whose window opens next, if any.
  [[nodiscard]] std::optional<model_id> next_to_open() const noexcept {
    return opening_.next() == never ? std::nullopt : std::optional{model_id{opening_.next_slot()}};
  }
  /// Time until which no batch is sent whatever arrives, if the next window opens at `opens`, or
  /// `never`, and a batch is sent at most `lead` before its device is free.
  [[nodiscard]] time_point quiet_until(time_point opens, duration lead,
                                       time_point now) const noexcept {
    const time_point free = next_free();
    if (free == never) return never;
    const time_point ready = free - lead;
    // Arriving requests may join waiting batches but are not sent before them.
    if (ready > now && (opens == never || !waiting_.empty())) return ready;
    return std::max(ready, opens);
  }
  /// Devices without any work.
  [[nodiscard]] std::size_t idle_devices() const noexcept { return entries_.idle_devices(); }
  [[nodiscard]] bool has_device(device_id d) const noexcept { return entries_.has(d); }
  /// Whether the device is present and may get work.
  [[nodiscard]] bool is_in_service(device_id d) const noexcept { return entries_.is_in_service(d); }
  /// Whether a device of that id was ever added.
  [[nodiscard]] bool has_ever(device_id d) const noexcept { return entries_.has_ever(d); }
  /// Capacity of a device that was added and has not been replaced.
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept { return entries_.capacity(d); }
  /// Largest capacity of the devices present; 0 without any. O(largest there ever was).
  [[nodiscard]] std::uint32_t largest_capacity() const noexcept {
    return entries_.largest_capacity();
  }
  /// Number of batches of a device, at most `entry_depth` in each entry.
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    return entries_.outstanding(d);
  }
  /// Idle share of the entries' time over about the last quarter second; 1 at the start.
  [[nodiscard]] double idle_fraction() const noexcept { return meter_.idle_fraction(); }

  /// Takes over another rank's measurements of devices and models with the same ids.
  void assume(const rank& other) { meter_ = other.meter_; }
  /// Measurements of the devices for the policies.
  [[nodiscard]] pool_view pool() const noexcept { return meter_.view(entries_.size()); }
  /// Adds the idle time until `now` to `pool`. Nothing may have changed since the last call.
  void look(time_point now) noexcept { measure(now); }

  /// Sets the model's candidate; an empty one removes it. The next `advance` acts on it.
  /// @param now The present, or the earlier time of the change if it is reported late.
  [[gnu::always_inline]] void on_candidate(model_id id, const candidate& c,
                                           time_point now) noexcept {
    model& m = models_[id.index()];
    if (m.best.send_at() <= now) [[unlikely]] {
      m.known = known_since(m, now);
    } else {
      m.known = now;
    }
    m.best = c;
    if (!m.is_granted) place(id, m, now);
  }

  /// Notes that the grant became a batch that starts at `exec_at` and should run for `expected`.
  void on_grant_used(model_id id, device_id d, time_point exec_at, duration expected,
                     time_point now) noexcept {
    measure(now);
    entries_.use(granted(id, d), exec_at, expected);
    meter_.on_batch(id, expected);
    answered(id, now);
  }

  /// Notes that the grant was not used: the entry is as before.
  void on_grant_returned(model_id id, device_id d, time_point now) noexcept {
    measure(now);
    entries_.release(granted(id, d));
    answered(id, now);
  }

  /// Marks an idle entry as busy with another rank's batch that should end at `until`, not before
  /// `now`.
  void occupy(device_entry at, time_point until, time_point now) noexcept {
    measure(now);
    entries_.occupy(at, until, now);
  }
  /// When the last batch of an entry should end; `distant_past` if it has none.
  [[nodiscard]] time_point busy_until(device_entry at) const noexcept {
    return entries_.busy_until(at);
  }

  /// Notes that the oldest batch of the entry ended.
  void on_complete(device_entry at, time_point now) noexcept {
    measure(now);
    entries_.ended(at, now);
  }

  /// Whether `advance` would do anything. False positives are possible.
  [[nodiscard, gnu::always_inline]] bool has_work(time_point now) const noexcept {
    if (opening_.next() <= now || entries_.next_end() < now) return true;
    if (waiting_.empty()) return false;
    const candidate& c = models_[waiting_.top()].best;
    return entries_.idle() > 0 || entries_.may_send_ahead(c) || c.send_by() < now;
  }
  /// Handles due timers: of models first, then of devices.
  template <rank_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    entries_.note_overruns(now);
    for (;;) {
      if (const std::uint32_t slot = opening_.pop_due(now); slot != timer_queue::none) {
        const candidate& c = models_[slot].best;
        // A window that opened before the entry was free has waited for it, even if unnoticed.
        if (device_entry at;
            entries_.find(c, now, at) && entries_.free_from(at, c) <= models_[slot].opened()) {
          give(model_id{slot}, at, now, sink);
        } else {
          waiting_.set(slot, c.urgency);
          sink.waits(model_id{slot});
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
      device_entry at;
      if (!entries_.find(c, now, at)) return;
      give(model_id{first}, at, now, sink);
    }
  }

  /// When `advance` must be called next, or `never`. Completions also call for it.
  [[nodiscard]] time_point next_wake() const noexcept {
    time_point next = opening_.next();
    if (!waiting_.empty()) {
      const candidate& c = models_[waiting_.top()].best;
      if (entries_.idle() > 0) return std::min(next, c.send_at());
      if (entries_.may_send_ahead(c) && entries_.next_end() <= c.latest) {
        next = std::min(next, entries_.next_end() - c.lead);
      }
    }
    return next;
  }

 private:
  struct alignas(64) model {  // One cache line.
    candidate best;
    time_point known;         // When it was set; for a window already open, since when it is.
    std::uint32_t entry = 0;  // Entry of the grant.
    bool is_granted = false;

    /// When its window opened or will open.
    [[nodiscard]] time_point opened() const noexcept { return std::max(best.send_at(), known); }
  };

  [[nodiscard]] device_entry granted(model_id id, device_id d) const noexcept {
    return {d, models_[id.index()].entry};
  }

  /// Keeps the time of a window that is already open: a changed batch has waited all the same.
  [[gnu::noinline]] static time_point known_since(const model& m, time_point now) noexcept {
    const bool was_open = !m.best.is_empty() && !m.is_granted && m.opened() <= now;
    return was_open ? m.opened() : now;
  }
  [[gnu::always_inline]] void place(model_id id, model& m, time_point now) noexcept {
    const std::size_t slot = id.index();
    if (m.best.is_empty()) {
      opening_.disarm(slot);
      waiting_.erase(slot);
    } else if (waiting_.contains(slot) && m.best.send_at() <= now) {
      if (waiting_.key(slot) != m.best.urgency) waiting_.set(slot, m.best.urgency);
    } else {
      waiting_.erase(slot);
      opening_.keep(slot, m.best.send_at());
    }
  }

  void answered(model_id id, time_point now) noexcept {
    model& m = models_[id.index()];
    m.is_granted = false;
    place(id, m, now);
  }

  template <rank_sink Sink>
  void give(model_id id, device_entry at, time_point now, Sink& sink) noexcept {
    opening_.disarm(id.index());
    waiting_.erase(id.index());
    models_[id.index()].is_granted = true;
    models_[id.index()].entry = at.entry;
    measure(now);  // Accounts for the time before the entry is taken.
    const time_point free_at = entries_.reserve(at);
    sink.grant(cohort::deferred::grant{
        .model = id, .device = at.device, .free_at = free_at, .pool = pool(), .entry = at.entry});
  }

  // Policies count an entry as a device: latencies already include the sharing.
  void measure(time_point now) noexcept { meter_.on_time(now, entries_.idle(), entries_.size()); }

  std::vector<model> models_;
  device_entries entries_;
  timer_queue opening_;               // By model: when its window opens.
  indexed_heap<time_point> waiting_;  // By model: window open, no device; by urgency.
  pool_meter meter_;
};

}  // namespace cohort::deferred
