// SPDX-License-Identifier: Apache-2.0
/// @file
/// Controls which devices a scheduler may use, by their health: `device_service`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/device_pools.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::engine {

/// The component that assigns work to devices: the part of a scheduler that device health affects.
/// Models: `basic_scheduler`, `rank_half`.
template <class S>
concept device_matcher = requires(S& s, device_id d, time_point now) {
  { s.set_in_service(d, true, now) } noexcept;
  { s.remove_device(d, now) } noexcept;
};

/// Manages a device from its addition to its removal: tells the scheduler when it is out of service
/// and when it is back, counts the devices in service, and keeps a model alive while a probe runs
/// it. A value. Cost: that of `device_health`; allocates only in `add_*`. Thread safety: none.
class device_service {
 public:
  /// @throws config_error If an option is outside its range.
  explicit device_service(const health_options& o) : health_{o} {}

  void add_pool(deferred::pool_id p) { pools_.add_pool(p); }
  /// Adds an idle device that the scheduler has.
  void add_device(device_id d, std::uint32_t capacity, deferred::pool_id p) {
    if (d.index() >= probed_with_.size()) probed_with_.resize(d.index() + 1);
    health_.add_device(d, capacity);
    pools_.add_device(d, p);
  }
  /// Gives a device no more work for good; its batches are still tracked.
  template <device_matcher Scheduler>
  void remove_device(device_id d, Scheduler& scheduler, time_point now) noexcept {
    if (health_.is_in_service(d)) pools_.take_out(d);
    health_.remove_device(d);
    // Its id must not be reused while a probe of it is running.
    if (!health_.is_probing(d)) scheduler.remove_device(d, now);
  }

  /// Takes a device that hangs or fails out of service until a probe succeeds.
  /// @returns Whether it was in service until now.
  template <device_matcher Scheduler>
  bool take_out(const health_event& e, Scheduler& scheduler, time_point now) noexcept {
    if (!e.is_new) return false;
    const device_id d = e.at.device;
    if (health_.is_present(d)) {
      scheduler.set_in_service(d, false, now);
      pools_.take_out(d);
    }
    return true;
  }
  /// Chooses a model for a probe, if there is one; it stays until `end_probe`.
  /// @param models `any_of(pool, behind)`, `begin_work(id)`: as `model_lives`.
  template <class Models>
  [[nodiscard]] std::optional<model_id> begin_probe(device_id d, Models& models) noexcept {
    // A different one from the last time, which may itself be at fault.
    const std::optional<model_id> with = models.any_of(pools_.of(d), probed_with_[d.index()]);
    if (!with) return std::nullopt;
    models.begin_work(*with);
    probed_with_[d.index()] = *with;
    return with;
  }
  /// The model chosen by `begin_probe`.
  [[nodiscard]] model_id probed_with(device_id d) const noexcept {
    return *probed_with_[d.index()];
  }
  /// Ends a probe, or replaces it if there is no model for it. @returns Whether the device is back.
  template <device_matcher Scheduler>
  bool end_probe(device_id d, bool failed, Scheduler& scheduler, time_point now) noexcept {
    const bool is_back = health_.on_probe(d, failed, now);
    if (!health_.is_present(d)) {
      scheduler.remove_device(d, now);
      return false;
    }
    if (!is_back) return false;
    scheduler.set_in_service(d, true, now);
    pools_.put_back(d);
    return true;
  }

  /// Whether its pool has no other device, in service or not. O(devices).
  [[nodiscard]] bool is_only(device_id d) const noexcept {
    for (std::uint32_t i = 0; i < probed_with_.size(); ++i) {
      const device_id other{i};
      if (other != d && health_.is_present(other) && pools_.of(other) == pools_.of(d)) return false;
    }
    return true;
  }

  /// For reports of batches sent and ended, and of time.
  [[nodiscard]] device_health& health() noexcept { return health_; }
  [[nodiscard]] const device_health& health() const noexcept { return health_; }
  /// The devices in service, by pool.
  [[nodiscard]] const device_pools& pools() const noexcept { return pools_; }
  /// Whether requests for devices of a pool must be handed back: the options ask for it and no
  /// device of the pool is in service.
  [[nodiscard]] bool hands_back(deferred::pool_id p) const noexcept {
    return health_.options().hands_back && !pools_.has_device(p);
  }

 private:
  device_health health_;
  device_pools pools_;
  std::vector<std::optional<model_id>> probed_with_;  // By device: the last one.
};

}  // namespace cohort::engine
