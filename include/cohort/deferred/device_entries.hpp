// SPDX-License-Identifier: Apache-2.0
/// @file
/// The devices that a rank assigns work to, by entry: `device_entries`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/device_set.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// Devices and the work of their entries. A device of capacity c has c entries and runs one batch
/// in each at a time. For a candidate it finds an entry of the free device with the fewest running
/// batches, then the smallest id, slow devices last; or else the entry that becomes free first, if
/// that is within the candidate's lead. An entry may have one batch sent ahead, unless that is off;
/// if its batch overruns, it is free once the end is reported. A value: owns no thread, reads no
/// clock. Cost: O(log devices + devices / 64 + capacity) a call, no allocation except in `add`.
/// Thread safety: none. Source: Symphony, Algorithm 1.
class device_entries {
 public:
  /// Maximum batches in an entry: one running and one sent ahead.
  static constexpr std::uint32_t depth = 2;

  /// Adds an idle device under an id that is not in use. Allocates.
  /// @param capacity Number of batches it may run at one time; at least 1.
  void add(device_id d, std::uint32_t capacity) {
    COHORT_ASSERT(capacity > 0);
    if (d.index() >= devices_.size()) {
      devices_.resize(d.index() + 1);
      ending_.resize(d.index() + 1);
    }
    if (2 * std::size_t{capacity} > idle_.size()) idle_.resize(2 * std::size_t{capacity});
    for (device_set& level : idle_) level.resize(devices_.size());
    COHORT_ASSERT(!devices_[d.index()].present && outstanding(d) == 0);
    devices_[d.index()] =
        device{.entries = std::vector<entry>(capacity), .present = true, .in_service = true};
    ++present_;
    entries_ += capacity;
    if (capacity >= with_capacity_.size()) with_capacity_.resize(std::size_t{capacity} + 1);
    ++with_capacity_[capacity];
    refresh(d);
  }
  /// Takes a device away: it gets no more work; report the end of its batches by `ended`.
  void remove(device_id d) noexcept {
    device& dev = devices_[d.index()];
    if (dev.in_service) entries_ -= capacity(d);
    dev.present = dev.in_service = false;
    --present_;
    --with_capacity_[capacity(d)];
    refresh(d);
  }
  /// Suspends or resumes work for a present device. Its batches still end.
  void set_in_service(device_id d, bool is_in_service) noexcept {
    device& dev = devices_[d.index()];
    COHORT_ASSERT(dev.present);
    if (dev.in_service == is_in_service) return;
    entries_ = is_in_service ? entries_ + capacity(d) : entries_ - capacity(d);
    dev.in_service = is_in_service;
    refresh(d);
  }
  /// Whether an entry may get a batch before the end of its running one is reported. On by default.
  void send_ahead(bool on) noexcept { sends_ahead_ = on; }
  [[nodiscard]] bool sends_ahead() const noexcept { return sends_ahead_; }
  /// Marks a device as slower than others, or failing: it is chosen after devices with as few
  /// batches.
  void set_slow(device_id d, bool is_slow) noexcept {
    device& dev = devices_[d.index()];
    if (dev.slow == is_slow) return;
    if (dev.idle > 0) idle_[level(dev)].erase(d);
    dev.slow = is_slow;
    if (dev.idle > 0) idle_[level(dev)].insert(d);
  }

  /// Number of devices present.
  [[nodiscard]] std::size_t devices() const noexcept { return present_; }
  /// Number of batches that the devices in service may run at one time,
  [[nodiscard]] std::size_t size() const noexcept { return entries_; }
  /// and how many more they may run now.
  [[nodiscard]] std::size_t idle() const noexcept { return idle_entries_; }
  /// Devices without any work.
  [[nodiscard]] std::size_t idle_devices() const noexcept {
    return idle_.empty() ? 0 : idle_[0].size() + idle_[1].size();
  }
  /// When the first batch that another may be sent behind should end, or `never`.
  [[nodiscard]] time_point next_end() const noexcept { return ending_.next(); }
  [[nodiscard]] bool has(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].present;
  }
  /// Whether the device is present and may get work.
  [[nodiscard]] bool is_in_service(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].in_service;
  }
  /// Whether a device of that id was ever added.
  [[nodiscard]] bool has_ever(device_id d) const noexcept { return d.index() < devices_.size(); }
  /// Capacity of a device that was added and has not been replaced.
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept {
    return static_cast<std::uint32_t>(devices_[d.index()].entries.size());
  }
  /// Largest capacity of the devices present; 0 without any. O(largest there ever was).
  [[nodiscard]] std::uint32_t largest_capacity() const noexcept {
    std::size_t largest = with_capacity_.size();
    while (largest > 0 && with_capacity_[largest - 1] == 0) --largest;
    return largest == 0 ? 0 : static_cast<std::uint32_t>(largest - 1);
  }
  /// Number of batches of a device, at most `depth` in each entry.
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    std::uint32_t sum = 0;
    for (const entry& e : devices_[d.index()].entries) sum += e.outstanding;
    return sum;
  }
  /// When the last batch of an entry should end; `distant_past` if it has none.
  [[nodiscard]] time_point busy_until(device_entry at) const noexcept {
    const entry& e = of(at);
    return e.outstanding == 0 ? distant_past : e.free_at;
  }

  /// Finds the entry for a batch of `c` at `now`. @returns Whether there is one.
  [[nodiscard]] bool find(const candidate& c, time_point now, device_entry& found) const noexcept {
    if (idle_entries_ > 0) {
      // An entry of the device with the fewest running batches.
      const auto least = std::ranges::find_if(idle_, [](const auto& s) { return !s.empty(); });
      found.device = least->smallest();
      const auto& entries = devices_[found.device.index()].entries;
      found.entry = static_cast<std::uint32_t>(std::ranges::find_if(entries, &entry::is_idle) -
                                               entries.begin());
      return true;
    }
    const time_point free_at = ending_.next();
    if (!may_send_ahead(c) || free_at > std::max(c.exec_at, now + c.lead) || free_at > c.latest) {
      return false;
    }
    found.device = device_id{ending_.next_slot()};
    const auto& entries = devices_[found.device.index()].entries;
    const auto ends = [free_at](const entry& e) { return e.is_ending() && e.free_at == free_at; };
    found.entry = static_cast<std::uint32_t>(std::ranges::find_if(entries, ends) - entries.begin());
    return true;
  }
  /// Whether a batch of `c` may be sent to an entry before its running batch ends.
  [[nodiscard]] bool may_send_ahead(const candidate& c) const noexcept {
    return c.lead > duration{0} && sends_ahead_;
  }
  /// Since when the entry found for `c` has been available.
  [[nodiscard]] time_point free_from(device_entry at, const candidate& c) const noexcept {
    const entry& e = of(at);
    return e.is_idle() ? e.free_at : e.free_at - c.lead;
  }

  /// Reserves an entry that was found until `use` or `release`. @returns When it is free.
  time_point reserve(device_entry at) noexcept {
    entry& e = of(at);
    e.reserved = true;
    const time_point free_at = e.free_at;
    refresh(at.device);
    return free_at;
  }
  /// Gives the reserved entry a batch that starts at `exec_at` and should run for `expected`.
  void use(device_entry at, time_point exec_at, duration expected) noexcept {
    entry& e = of(at);
    COHORT_ASSERT(e.outstanding < depth);
    e.reserved = false;
    put(e, e.outstanding + 1, exec_at, expected);
    refresh(at.device);
  }
  /// Undoes `reserve`.
  void release(device_entry at) noexcept {
    of(at).reserved = false;
    refresh(at.device);
  }
  /// Marks an idle entry as busy with other work that should end at `until`, not before `now`.
  void occupy(device_entry at, time_point until, time_point now) noexcept {
    COHORT_ASSERT(of(at).is_idle() && until >= now);
    put(of(at), 1, now, until - now);
    refresh(at.device);
  }
  /// Notes that the oldest batch of the entry ended.
  void ended(device_entry at, time_point now) noexcept {
    entry& e = of(at);
    COHORT_ASSERT(e.outstanding > 0);
    --e.outstanding;
    e.overruns = false;
    e.free_at = e.outstanding == 0 ? now : std::max(now, e.last_start) + e.last_expected;
    refresh(at.device);
  }
  /// Stops predicting the end of overrunning batches: their entries wait until it is reported.
  void note_overruns(time_point now) noexcept {
    while (ending_.next() < now) {
      const device_id d{ending_.next_slot()};
      for (entry& e : devices_[d.index()].entries) e.overruns |= e.is_ending() && e.free_at < now;
      refresh(d);
    }
  }

 private:
  struct entry {
    time_point free_at = distant_past;
    time_point last_start;  // Start of the batch sent last.
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
    std::uint32_t idle = 0;  // Idle entries, as counted in `idle_`.
    bool present = false;
    bool in_service = false;  // If false, it gets no work for a while.
    bool slow = false;
  };
  /// Index in `idle_` of a device with an idle entry.
  [[nodiscard]] static std::size_t level(const device& d) noexcept {
    return 2 * (d.entries.size() - d.idle) + (d.slow ? 1 : 0);
  }

  [[nodiscard]] entry& of(device_entry at) noexcept {
    return devices_[at.device.index()].entries[at.entry];
  }
  [[nodiscard]] const entry& of(device_entry at) const noexcept {
    return devices_[at.device.index()].entries[at.entry];
  }
  static void put(entry& e, std::uint32_t outstanding, time_point start,
                  duration expected) noexcept {
    e.outstanding = outstanding;
    e.last_start = start;
    e.last_expected = expected;
    e.free_at = start + expected;
  }

  /// Updates the indexes after the entries of a device have changed.
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

  std::vector<device> devices_;
  std::vector<device_set> idle_;  // Devices with an idle entry, by `level`.
  timer_queue ending_;            // By device: when its first batch should end.
  std::size_t present_ = 0;
  std::size_t entries_ = 0;  // Entries of the devices in service.
  std::size_t idle_entries_ = 0;
  bool sends_ahead_ = true;
  std::vector<std::uint32_t> with_capacity_;  // Devices present, by capacity.
};

}  // namespace cohort::deferred
