// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects devices that hang or fail from the ends of their batches: `device_health`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/runtime/thread_load.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine {

/// When a device is taken out of service, and when it is probed.
struct health_options {
  bool is_on = true;
  /// A device is suspect when a batch has run for `factor` times its longest expected time plus
  /// `floor`; at least 1, and above 0.
  double factor = 3;
  duration floor = std::chrono::milliseconds{250};
  /// It hangs when a batch has run this many times as long; at least 1. Stragglers return.
  double patience = 4;
  /// If its thread lacks processor time, a suspect batch gets as much extra time as the thread has
  /// lacked since, up to this multiple of the limit; at least 1, which means no extra time.
  double starved_patience = 30;
  /// It fails when `failures` of its last `window` batches failed; 1 to `window`, which is 1 to 64.
  std::uint32_t failures = 3;
  std::uint32_t window = 10;
  /// Time until the first probe, and longest time between probes, which doubles each time; above 0.
  duration first_probe = std::chrono::milliseconds{100};
  duration longest_probe = std::chrono::seconds{60};
  /// Maximum retries of a repeatable request after failed batches, all on one device. A request
  /// that fails on a second device is not retried; with only one device it is retried once. 0 to
  /// 255.
  std::uint32_t retries = 3;
  /// Whether a model is suspended for a while if its requests took several devices out of service
  /// (`model_costs`).
  bool suspends_models = true;
  /// If true, requests of a model without a device in service end `failed` at once: for callers
  /// that can run them elsewhere. If false, they wait for a device to return.
  bool hands_back = false;

  /// @throws config_error If a field is outside its range.
  void validate() const {
    expects(factor >= 1 && factor < 1e6, "health: factor must be in 1 to 1e6");
    expects(floor > duration{0}, "health: floor must be above 0");
    expects(patience >= 1 && patience < 1e6, "health: patience must be in 1 to 1e6");
    expects(starved_patience >= 1 && starved_patience < 1e6,
            "health: starved_patience must be in 1 to 1e6");
    expects(window >= 1 && window <= 64, "health: window must be in 1 to 64");
    expects(failures >= 1 && failures <= window, "health: failures must be in 1 to window");
    expects(first_probe > duration{0} && longest_probe >= first_probe,
            "health: first_probe must be above 0, and longest_probe at least as long");
    expects(retries <= 255, "health: retries must be in 0 to 255");
  }
};

/// The state of a device.
enum class device_state : std::uint8_t {
  healthy,
  suspect,      ///< A batch is overdue. Its entry gets no more work.
  quarantined,  ///< It hangs or fails: it gets only probes.
};

[[nodiscard]] constexpr std::string_view to_string(device_state s) noexcept {
  switch (s) {
    case device_state::healthy:
      return "healthy";
    case device_state::suspect:
      return "suspect";
    case device_state::quarantined:
      return "quarantined";
  }
  return "?";
}

/// An action to take for a device.
struct health_event {
  enum class kind : std::uint8_t {
    hangs,        ///< Abandon the batches of the entry, and take the device out of service.
    fails,        ///< Take the device out of service.
    probe,        ///< Probe the device, and report the result by `on_probe`.
    probe_hangs,  ///< Its probe hangs, and the device with it, until `on_probe` reports the end.
  };
  kind what;
  device_entry at;
  bool is_new = true;  ///< If false, the device is already out of service.
};

/// Tracks the batches of each device from dispatch to end, and decides which devices to take out of
/// service and when to probe them. A batch should end at most `expected` after its start, which is
/// when it was sent or when the previous batch of its entry ended. A device that returns is on
/// trial: the first failure among its next `window` batches takes it out again, for twice as long.
/// A failure is blamed on a request that already failed on another device; it then counts against
/// neither device. After `failures` such batches in a row a probe decides at once. A probe hangs
/// when a batch as long as the device's longest expected one would. A value: owns no thread, reads
/// no clock. Cost: O(log devices + capacity) a call; allocates only in `add_device`. Thread safety:
/// none. Source: none of the papers.
class device_health {
 public:
  /// @throws config_error If an option is outside its range.
  explicit device_health(const health_options& o = {}) : options_{o} { o.validate(); }

  /// Adds an idle device; its id may have belonged to a removed one.
  void add_device(device_id d, std::uint32_t capacity) {
    if (d.index() >= devices_.size()) {
      devices_.resize(d.index() + 1);
      due_.resize(d.index() + 1);
    }
    // One for each entry, and one for probes.
    devices_[d.index()] = device{.lanes = std::vector<lane>(capacity + 1), .present = true};
    ++hang_changes_;  // The removed device counts no more.
    refresh(d);
  }
  /// Marks the device as removed. Its batches are still tracked.
  void remove_device(device_id d) noexcept {
    devices_[d.index()].present = false;
    devices_[d.index()].probe_at = never;
    refresh(d);
  }
  [[nodiscard]] bool is_present(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].present;
  }

  /// Whether it may get work.
  [[nodiscard]] bool is_in_service(device_id d) const noexcept {
    return is_present(d) && devices_[d.index()].state != device_state::quarantined;
  }

  /// Notes that a batch was sent. @param start Earliest start. @param expected Longest expected run
  /// time.
  /// @param allowed Replaces `expected` for this batch, but not for other work, if it is longer.
  void on_dispatch(device_entry at, time_point start, duration expected,
                   duration allowed = duration{0}) noexcept {
    lane& l = lane_of(at);
    COHORT_ASSERT(l.count < l.sent.size());
    device& d = devices_[at.device.index()];
    d.longest = std::max(d.longest, expected);
    l.sent[l.count++] = {start, std::max(expected, allowed)};
    if (l.count == 1) begin(l, start);
    refresh(at.device);
  }
  /// Notes that the oldest batch of an entry ended. @returns The action to take, if any.
  /// @param is_blamed If it failed: one of its requests is to blame.
  std::optional<health_event> on_complete(device_entry at, bool failed, time_point now,
                                          bool is_blamed = false) noexcept {
    device& d = devices_[at.device.index()];
    lane& l = lane_of(at);
    COHORT_ASSERT(l.count > 0);
    const bool was_given_up = l.is_given_up;
    l.sent[0] = l.sent[1];
    if (--l.count == 0) {
      l = lane{};
      if (was_given_up) ++hang_changes_;
    } else if (!was_given_up) {
      begin(l, std::max(now, l.sent[0].start));
    }
    std::optional<health_event> out;
    if (!was_given_up && options_.is_on) out = judge(d, at, failed, is_blamed, now);
    if (d.state == device_state::suspect && std::ranges::none_of(d.lanes, &lane::is_late)) {
      d.state = device_state::healthy;
    }
    wait_for_probe(d, now);
    refresh(at.device);
    return out;
  }
  /// Notes that a request caused one of the device's last failures. If the device is out of service
  /// for them, it is probed at once.
  void forgive(device_id id, time_point now) noexcept {
    device& d = devices_[id.index()];
    d.failed &= d.failed - 1;  // The newest.
    const auto left = static_cast<std::uint32_t>(std::popcount(d.failed));
    if (!d.is_out_for_failures || d.is_probing || left >= options_.failures) return;
    d.is_forgiven = true;
    wait_for_probe(d, now);
    refresh(id);
  }
  /// Whether a probe of the device is in progress.
  [[nodiscard]] bool is_probing(device_id d) const noexcept {
    return d.index() < devices_.size() && devices_[d.index()].is_probing;
  }
  /// Notes that the probe ended. @returns Whether the device may get work again: not if it hung.
  bool on_probe(device_id id, bool failed, time_point now) noexcept {
    device& d = devices_[id.index()];
    COHORT_ASSERT(d.is_probing);
    d.is_probing = false;
    d.is_out_for_failures = false;
    d.is_hung = std::exchange(d.lanes.back(), {}).is_given_up;
    if (d.is_hung) ++hang_changes_;
    const bool is_forgiven = std::exchange(d.is_forgiven, false);
    if (failed || d.is_hung) {
      d.pause = std::min(2 * d.pause, options_.longest_probe);
      d.since = now;
    } else {
      d.state = device_state::healthy;
      d.failed = 0;
      d.on_trial = is_forgiven ? d.trial_before : options_.window;
      if (is_forgiven) d.pause = d.pause_before;
    }
    wait_for_probe(d, now);
    refresh(id);
    return d.state == device_state::healthy;
  }

  /// When `take_due` must be called next, or `never`.
  [[nodiscard]] time_point next() const noexcept { return due_.next(); }
  /// Returns the actions due at `now`, one by one, until there are none. If the caller is late by
  /// more than `floor` and 250 ms, it was itself stopped, and all batches get their time once more.
  std::optional<health_event> take_due(time_point now) noexcept {
    return take_due(now, [](device_entry) noexcept { return runtime::thread_load{}; });
  }
  /// @param load `load(device_entry)`: the load of the threads that run an entry's batches; all
  /// zero if only time decides. Called only for late batches.
  template <class Load>
  std::optional<health_event> take_due(time_point now, Load load) noexcept {
    while (due_.next() <= now) {
      const device_id id{due_.next_slot()};
      device& d = devices_[id.index()];
      if (d.probe_at <= now) {
        d.probe_at = never;
        d.is_probing = true;
        lane& l = d.lanes.back();
        l.sent[l.count++] = {now, d.longest};
        begin(l, now);
        refresh(id);
        return health_event{health_event::kind::probe, {id, 0}};
      }
      const auto l = std::ranges::find_if(d.lanes, [now](const lane& x) { return x.due <= now; });
      const device_entry at{id, static_cast<std::uint32_t>(l - d.lanes.begin())};
      if (now - l->due > std::max(options_.floor, stopped)) {
        l->started = now;  // The driver was stopped, and perhaps the device too.
        l->due = now + l->allowed;
        refresh(id);
        continue;
      }
      if (!l->is_late) {
        l->is_late = true;
        l->due = l->started + scaled(l->allowed, options_.patience);
        l->late_at = now;
        l->load = load(at);
        if (d.state == device_state::healthy) d.state = device_state::suspect;
        refresh(id);
        continue;
      }
      if (const time_point later = hangs_at(*l, load(at), now); !l->is_given_up && later > now) {
        l->due = std::max(later, now + options_.floor);  // Checked no more often than that.
        refresh(id);
        continue;
      }
      if (!std::exchange(l->is_given_up, true)) ++hang_changes_;
      l->due = never;
      if (l == d.lanes.end() - 1) {
        refresh(id);
        return health_event{health_event::kind::probe_hangs, {id, 0}, false};
      }
      const bool is_new = d.state != device_state::quarantined;
      take_out(d, now);
      d.is_hung = true;
      d.is_out_for_failures = d.is_forgiven = false;
      refresh(id);
      return health_event{health_event::kind::hangs, at, is_new};
    }
    return std::nullopt;
  }
  /// Notes that hung batches could not be abandoned yet: reports them again after `floor`.
  void postpone(device_entry at, time_point now) noexcept {
    lane_of(at).due = now + options_.floor;
    refresh(at.device);
  }

  [[nodiscard]] device_state state(device_id d) const noexcept { return devices_[d.index()].state; }
  /// Number of devices that still hold the batch or probe in which they hang; devices that failed
  /// or wait for a probe do not count. O(entries).
  [[nodiscard]] std::size_t hanging_devices() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(devices_, [](const device& d) {
      return std::ranges::any_of(d.lanes, &lane::is_given_up);
    }));
  }
  /// Changes whenever the result of `hanging_devices` does. O(1).
  [[nodiscard]] std::uint64_t hang_changes() const noexcept { return hang_changes_; }
  [[nodiscard]] const health_options& options() const noexcept { return options_; }

 private:
  static constexpr duration stopped =
      std::chrono::milliseconds{250};  // A busy machine is never this late.
  static constexpr duration after_hang =
      std::chrono::milliseconds{500};  // Longest delay from release to a probe.

  struct sent_batch {
    time_point start;
    duration expected{0};
  };
  struct lane {
    std::array<sent_batch, deferred::rank::entry_depth> sent{};
    std::uint32_t count = 0;
    time_point started{};  // Start of the oldest,
    duration allowed{0};   // and its limit.
    time_point due = never;
    bool is_late = false;
    bool is_given_up = false;
    time_point late_at{};         // When it was found to be late,
    runtime::thread_load load{};  // and its threads' load then.
  };
  struct device {
    std::vector<lane> lanes;  // The last is for probes.
    duration longest{0};      // Longest expected batch.
    bool present = false;
    device_state state = device_state::healthy;
    bool is_probing = false;
    std::uint64_t failed = 0;    // Recent batches, newest in bit 0.
    std::uint32_t on_trial = 0;  // Batches left of its trial.
    duration pause{0};           // Until the next probe.
    time_point since{};          // When it was taken out, or a probe failed.
    time_point probe_at = never;
    std::uint32_t blamed = 0;          // Last failures in a row caused by requests.
    bool is_hung = false;              // Taken out because it hung,
    bool is_out_for_failures = false;  // or because it failed, without a probe since;
    bool is_forgiven = false;          // but it was not to blame.
    std::uint32_t trial_before = 0;    // Earlier `on_trial` and `pause`.
    duration pause_before{0};
  };

  [[nodiscard]] lane& lane_of(device_entry at) noexcept {
    return devices_[at.device.index()].lanes[at.entry];
  }
  /// Saturating: a strange profile may expect very long times.
  [[nodiscard]] static duration scaled(duration d, double by) noexcept {
    const double out = static_cast<double>(d.count()) * by;
    return out < 1e17 ? duration{std::llround(out)} : duration{100'000'000'000'000'000};
  }
  void begin(lane& l, time_point start) noexcept {
    l.started = start;
    l.allowed = scaled(l.sent[0].expected, options_.factor) + options_.floor;
    l.due = options_.is_on ? start + l.allowed : never;
    l.is_late = false;
  }

  /// When a late batch counts as hung, given the processor time its threads have lacked.
  [[nodiscard]] time_point hangs_at(const lane& l, const runtime::thread_load& load,
                                    time_point now) const noexcept {
    const duration limit = scaled(l.allowed, options_.patience);
    const duration starved = runtime::starved_time(l.load, load, now - l.late_at);
    return l.started + std::min(limit + starved, scaled(limit, options_.starved_patience));
  }

  std::optional<health_event> judge(device& d, device_entry at, bool failed, bool is_blamed,
                                    time_point now) noexcept {
    if (!failed) d.blamed = 0;
    if (failed && is_blamed) {
      if (d.state == device_state::quarantined || ++d.blamed < options_.failures)
        return std::nullopt;
      take_out(d, now);
      d.is_out_for_failures = d.is_forgiven = true;
      return health_event{health_event::kind::fails, at};
    }
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - options_.window);
    d.failed = ((d.failed << 1U) | (failed ? 1U : 0U)) & mask;
    const bool on_trial = d.on_trial > 0;
    if (on_trial && !failed && --d.on_trial == 0) d.pause = duration{0};
    const auto count = static_cast<std::uint32_t>(std::popcount(d.failed));
    const bool is_out = d.state == device_state::quarantined;
    if (is_out || !failed || (!on_trial && count < options_.failures)) return std::nullopt;
    take_out(d, now);
    d.is_out_for_failures = true;
    return health_event{health_event::kind::fails, at};
  }
  void take_out(device& d, time_point now) noexcept {
    if (d.state == device_state::quarantined) return;
    d.state = device_state::quarantined;
    d.since = now;
    d.blamed = 0;
    d.trial_before = d.on_trial;
    d.pause_before = d.pause;
    d.pause = d.pause == duration{0} ? options_.first_probe
                                     : std::min(2 * d.pause, options_.longest_probe);
    d.on_trial = 0;
  }
  /// Schedules a probe for when the device holds no work; soon after that if it hung.
  void wait_for_probe(device& d, time_point now) const noexcept {
    if (!d.present || d.state != device_state::quarantined || d.is_probing) return;
    if (std::ranges::any_of(d.lanes, [](const lane& l) { return l.count > 0; })) return;
    d.probe_at = std::max(now, d.since + d.pause);
    if (d.is_hung) d.probe_at = std::min(d.probe_at, now + after_hang);
    if (d.is_forgiven) d.probe_at = now;
  }
  void refresh(device_id id) noexcept {
    const device& d = devices_[id.index()];
    time_point next = d.probe_at;
    for (const lane& l : d.lanes) next = std::min(next, l.due);
    due_.arm(id.index(), next);
  }

  health_options options_;
  std::vector<device> devices_;
  timer_queue due_;  // By device.
  std::uint64_t hang_changes_ = 0;
};

}  // namespace cohort::engine
