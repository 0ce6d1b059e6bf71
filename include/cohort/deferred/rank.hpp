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
#include <optional>
#include <vector>

namespace cohort::deferred {

/// Binds candidates to devices. A device of capacity c has c entries, and runs a batch in each at
/// one time. When a candidate's window opens, its model timer takes an entry of the free device
/// with the fewest batches at work, of those the smallest id; if none is free the candidate waits,
/// and the next entry to become free takes the waiting candidate with the smallest urgency. So load
/// settles on the small ids and the large ones idle. With a lead (network delay, wake margin) an
/// entry counts as free that much before its batch is expected to end; one that overruns is free
/// when its end is told. So each entry may have one batch sent ahead: ends that fall into one lead
/// are as many as the entries, and each is covered. A value: owns no thread, reads no clock. It
/// talks to a `rank_sink`, in `advance`. At most one grant is outstanding for a model. At one
/// instant, model timers come before devices, then the order in which they were set.
/// Cost: O(log models + devices / 64 + capacity) a call, no allocation but in `add_*`.
/// Thread safety: none. Source: Symphony, Algorithm 1 and Appendix D.
class rank {
 public:
  /// Most batches in an entry: one that runs and one sent ahead.
  static constexpr std::uint32_t entry_depth = 2;

  /// Adds an idle device under an id that is not in use. Allocates.
  /// @param capacity How many batches it may run at one time; at least 1.
  void add_device(device_id d, time_point now, std::uint32_t capacity = 1) {
    COHORT_ASSERT(capacity > 0);
    if (d.index() >= devices_.size()) {
      devices_.resize(d.index() + 1);
      ending_.resize(d.index() + 1);
    }
    if (2 * std::size_t{capacity} > idle_.size()) idle_.resize(2 * std::size_t{capacity});
    for (device_set& level : idle_) level.resize(devices_.size());
    COHORT_ASSERT(!devices_[d.index()].present && outstanding(d) == 0);
    measure(now);
    devices_[d.index()] =
        device{.entries = std::vector<entry>(capacity), .present = true, .in_service = true};
    ++present_;
    entries_ += capacity;
    if (capacity >= with_capacity_.size()) with_capacity_.resize(std::size_t{capacity} + 1);
    ++with_capacity_[capacity];
    refresh(d);
  }

  /// Takes a device away: it gets no more work; what it has still ends by `on_complete`.
  void remove_device(device_id d, time_point now) noexcept {
    device& dev = devices_[d.index()];
    measure(now);
    if (dev.in_service) entries_ -= capacity(d);
    dev.present = dev.in_service = false;
    --present_;
    --with_capacity_[capacity(d)];
    refresh(d);
  }
  /// Gives a device that is present no work for a while, or again. What it has still ends.
  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    device& dev = devices_[d.index()];
    COHORT_ASSERT(dev.present);
    if (dev.in_service == is_in_service) return;
    measure(now);
    entries_ = is_in_service ? entries_ + capacity(d) : entries_ - capacity(d);
    dev.in_service = is_in_service;
    refresh(d);
  }

  /// Whether a device is slower than others, or fails: then it is taken after those with as few
  /// batches.
  void set_slow(device_id d, bool is_slow) noexcept {
    device& dev = devices_[d.index()];
    if (dev.slow == is_slow) return;
    if (dev.idle > 0) idle_[level(dev)].erase(d);
    dev.slow = is_slow;
    if (dev.idle > 0) idle_[level(dev)].insert(d);
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
  /// How many batches the devices in service may run at one time.
  [[nodiscard]] std::size_t entries() const noexcept { return entries_; }
  [[nodiscard]] std::size_t idle_entries() const noexcept { return idle_entries_; }
  /// When an entry should be free: `distant_past` if one is, `never` if nothing is at work.
  [[nodiscard]] time_point next_free() const noexcept {
    return idle_entries_ > 0 ? distant_past : ending_.next();
  }
  /// The model whose window opens next, if one is to open.
  [[nodiscard]] std::optional<model_id> next_to_open() const noexcept {
    return opening_.next() == never ? std::nullopt : std::optional{model_id{opening_.next_slot()}};
  }
  /// Until when nobody is sent, whoever comes, if the next window opens at `opens`, or `never`, and
  /// what is sent leaves `lead` before its device is free, at most.
  [[nodiscard]] time_point quiet_until(time_point opens, duration lead,
                                       time_point now) const noexcept {
    const time_point free = next_free();
    if (free == never) return never;
    const time_point ready = free - lead;
    // Who comes may join those that wait, but not go before.
    if (ready > now && (opens == never || !waiting_.empty())) return ready;
    return std::max(ready, opens);
  }
  /// Devices without any work.
  [[nodiscard]] std::size_t idle_devices() const noexcept {
    return idle_.empty() ? 0 : idle_[0].size() + idle_[1].size();
  }
  [[nodiscard]] bool has_device(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].present;
  }
  /// Whether it is present and may get work.
  [[nodiscard]] bool is_in_service(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].in_service;
  }
  /// Whether a device of that id was ever added.
  [[nodiscard]] bool has_ever(device_id d) const noexcept { return d.index() < devices_.size(); }
  /// Of a device that was added and has not been replaced.
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept {
    return static_cast<std::uint32_t>(devices_[d.index()].entries.size());
  }
  /// The largest of the devices present; 0 without any. O(largest there ever was).
  [[nodiscard]] std::uint32_t largest_capacity() const noexcept {
    std::size_t largest = with_capacity_.size();
    while (largest > 0 && with_capacity_[largest - 1] == 0) --largest;
    return largest == 0 ? 0 : static_cast<std::uint32_t>(largest - 1);
  }
  /// Batches that a device has, at most `entry_depth` in each entry.
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    std::uint32_t sum = 0;
    for (const entry& e : devices_[d.index()].entries) sum += e.outstanding;
    return sum;
  }
  /// Share of the entries' time without work, over about the last quarter second; 1 at the start.
  [[nodiscard]] double idle_fraction() const noexcept { return meter_.idle_fraction(); }

  /// Takes over what another rank has measured of its devices and models, of the same ids.
  void assume(const rank& other) { meter_ = other.meter_; }
  /// What the policies may know of the devices.
  [[nodiscard]] pool_view pool() const noexcept { return meter_.view(entries_); }
  /// Nothing has changed until `now`: what idled since is part of `pool`.
  void look(time_point now) noexcept { measure(now); }

  /// The model's candidate is now `c`; an empty one removes it. Acted upon by `advance`.
  /// @param now Or earlier: since when it is so, if it was not told at once.
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

  /// The grant became a batch that starts at `exec_at` and should run for `expected`.
  void on_grant_used(model_id id, device_id d, time_point exec_at, duration expected,
                     time_point now) noexcept {
    entry& e = granted(id, d);
    measure(now);
    e.reserved = false;
    COHORT_ASSERT(e.outstanding < entry_depth);
    ++e.outstanding;
    e.last_start = exec_at;
    e.last_expected = expected;
    e.free_at = exec_at + expected;
    meter_.on_batch(id, expected);
    refresh(d);
    answered(id, now);
  }

  /// The grant was not needed: the entry is as before.
  void on_grant_returned(model_id id, device_id d, time_point now) noexcept {
    measure(now);
    granted(id, d).reserved = false;
    refresh(d);
    answered(id, now);
  }

  /// An idle entry has work that another rank has sent, and that should end at `until`, not before
  /// `now`.
  void occupy(device_entry at, time_point until, time_point now) noexcept {
    entry& e = devices_[at.device.index()].entries[at.entry];
    COHORT_ASSERT(e.is_idle() && until >= now);
    measure(now);
    e.outstanding = 1;
    e.last_start = now;
    e.last_expected = until - now;
    e.free_at = until;
    refresh(at.device);
  }
  /// When the last batch of an entry should end; `distant_past` if it has none.
  [[nodiscard]] time_point busy_until(device_entry at) const noexcept {
    const entry& e = devices_[at.device.index()].entries[at.entry];
    return e.outstanding == 0 ? distant_past : e.free_at;
  }

  /// The oldest batch of the entry ended.
  void on_complete(device_entry at, time_point now) noexcept {
    entry& e = devices_[at.device.index()].entries[at.entry];
    COHORT_ASSERT(e.outstanding > 0);
    measure(now);
    --e.outstanding;
    e.overruns = false;
    e.free_at = e.outstanding == 0 ? now : std::max(now, e.last_start) + e.last_expected;
    refresh(at.device);
  }

  /// Whether `advance` would do anything. A wrong yes is possible.
  [[nodiscard, gnu::always_inline]] bool has_work(time_point now) const noexcept {
    if (opening_.next() <= now || ending_.next() < now) return true;
    if (waiting_.empty()) return false;
    const candidate& c = models_[waiting_.top()].best;
    return idle_entries_ > 0 || c.lead > duration{0} || c.send_by() < now;
  }
  /// Fires what is due: model timers, then devices.
  template <rank_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    while (ending_.next() < now) note_overruns(device_id{ending_.next_slot()}, now);
    for (;;) {
      if (const std::uint32_t slot = opening_.pop_due(now); slot != timer_queue::none) {
        const candidate& c = models_[slot].best;
        // Whose window opened before the entry was free has waited for it, if unseen.
        if (device_entry at; find_entry(c, now, at) && free_from(at, c) <= models_[slot].opened()) {
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
      if (!find_entry(c, now, at)) return;
      give(model_id{first}, at, now, sink);
    }
  }

  /// When `advance` must be called next, or `never`. Completions also call for it.
  [[nodiscard]] time_point next_wake() const noexcept {
    time_point next = opening_.next();
    if (!waiting_.empty()) {
      const candidate& c = models_[waiting_.top()].best;
      if (idle_entries_ > 0) return std::min(next, c.send_at());
      if (c.lead > duration{0} && ending_.next() <= c.latest) {
        next = std::min(next, ending_.next() - c.lead);
      }
    }
    return next;
  }

 private:
  struct entry {
    time_point free_at = distant_past;
    time_point last_start;  // Of the batch sent last.
    duration last_expected{0};
    std::uint32_t outstanding = 0;
    bool reserved = false;  // Granted, not yet answered.
    bool overruns = false;  // Its batch should have ended.

    [[nodiscard]] bool is_idle() const noexcept { return outstanding == 0 && !reserved; }
    /// Whether a batch may be sent behind the one that runs.
    [[nodiscard]] bool is_ending() const noexcept {
      return outstanding == 1 && !reserved && !overruns;
    }
  };
  struct device {
    std::vector<entry> entries;
    std::uint32_t idle = 0;  // Of the entries; as `idle_` has it.
    bool present = false;
    bool in_service = false;  // Else it gets no work for a while.
    bool slow = false;
  };
  /// Which of `idle_` a device belongs to, if one of its entries is idle.
  [[nodiscard]] static std::size_t level(const device& d) noexcept {
    return 2 * (d.entries.size() - d.idle) + (d.slow ? 1 : 0);
  }

  struct alignas(64) model {  // One line of the cache.
    candidate best;
    time_point known;         // Since when; if it was open before it changed, since it was.
    std::uint32_t entry = 0;  // Of the grant.
    bool is_granted = false;

    /// Since when its window is open, or from when on.
    [[nodiscard]] time_point opened() const noexcept { return std::max(best.send_at(), known); }
  };

  [[nodiscard]] entry& granted(model_id id, device_id d) noexcept {
    return devices_[d.index()].entries[models_[id.index()].entry];
  }

  /// The entries of a device have changed.
  void refresh(device_id d) noexcept {
    device& dev = devices_[d.index()];
    if (dev.in_service && dev.entries.size() == 1) [[likely]] {
      const entry& e = dev.entries.front();
      return settle(d, dev, e.is_idle(), e.is_ending() ? e.free_at : never);
    }
    std::uint32_t idle = 0;
    time_point next_end = never;
    for (const entry& e : dev.entries) {
      if (!dev.in_service) break;
      idle += e.is_idle();
      if (e.is_ending()) next_end = std::min(next_end, e.free_at);
    }
    settle(d, dev, idle, next_end);
  }
  [[gnu::always_inline]] void settle(device_id d, device& dev, std::uint32_t idle,
                                     time_point next_end) noexcept {
    if (idle != dev.idle) {
      if (dev.idle > 0) idle_[level(dev)].erase(d);
      idle_entries_ = idle_entries_ + idle - dev.idle;
      dev.idle = idle;
      if (idle > 0) idle_[level(dev)].insert(d);
    }
    ending_.arm(d.index(), next_end);
  }
  /// When a batch that overruns will end is not known: its entry waits for the completion.
  void note_overruns(device_id d, time_point now) noexcept {
    for (entry& e : devices_[d.index()].entries) e.overruns |= e.is_ending() && e.free_at < now;
    refresh(d);
  }

  /// Of one whose window is open, as a rule: who changes his batch has waited all the same.
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

  /// Since when an entry that was found for `c` could have been.
  [[nodiscard]] time_point free_from(device_entry at, const candidate& c) const noexcept {
    const entry& e = devices_[at.device.index()].entries[at.entry];
    return e.is_idle() ? e.free_at : e.free_at - c.lead;
  }
  bool find_entry(const candidate& c, time_point now, device_entry& found) const noexcept {
    if (idle_entries_ > 0) {
      // Where it shares the device with the fewest.
      const auto least = std::ranges::find_if(idle_, [](const auto& s) { return !s.empty(); });
      found.device = least->smallest();
      const auto& entries = devices_[found.device.index()].entries;
      found.entry = static_cast<std::uint32_t>(std::ranges::find_if(entries, &entry::is_idle) -
                                               entries.begin());
      return true;
    }
    const time_point free_at = ending_.next();
    if (c.lead == duration{0} || free_at > std::max(c.exec_at, now + c.lead) ||
        free_at > c.latest) {
      return false;
    }
    found.device = device_id{ending_.next_slot()};
    const auto& entries = devices_[found.device.index()].entries;
    const auto ends = [free_at](const entry& e) { return e.is_ending() && e.free_at == free_at; };
    found.entry = static_cast<std::uint32_t>(std::ranges::find_if(entries, ends) - entries.begin());
    return true;
  }

  template <rank_sink Sink>
  void give(model_id id, device_entry at, time_point now, Sink& sink) noexcept {
    opening_.disarm(id.index());
    waiting_.erase(id.index());
    models_[id.index()].is_granted = true;
    models_[id.index()].entry = at.entry;
    entry& e = granted(id, at.device);
    measure(now);  // What was, before the entry is taken.
    e.reserved = true;
    refresh(at.device);
    sink.grant(cohort::deferred::grant{
        .model = id, .device = at.device, .free_at = e.free_at, .pool = pool(), .entry = at.entry});
  }

  // To policies an entry is a device: that batches in several take longer is in their latencies.
  void measure(time_point now) noexcept { meter_.on_time(now, idle_entries_, entries_); }

  std::vector<device> devices_;
  std::vector<model> models_;
  std::vector<device_set> idle_;      // Devices with an idle entry, by `level`.
  timer_queue ending_;                // By device: when the first of its batches should end.
  timer_queue opening_;               // By model: when its window opens.
  indexed_heap<time_point> waiting_;  // By model: window open, no device; by urgency.
  std::size_t present_ = 0;
  std::size_t entries_ = 0;  // Of the devices in service.
  std::size_t idle_entries_ = 0;
  std::vector<std::uint32_t> with_capacity_;  // Devices present, by capacity.
  pool_meter meter_;
};

}  // namespace cohort::deferred
