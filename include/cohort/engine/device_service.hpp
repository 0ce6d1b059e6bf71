// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which devices a scheduler may use, by their health: `device_service`.
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

/// Who gives devices work: all of a scheduler that their health changes. Models: `basic_scheduler`,
/// `rank_half`.
template <class S>
concept device_matcher = requires(S& s, device_id d, time_point now) {
  { s.set_in_service(d, true, now) } noexcept;
  { s.remove_device(d, now) } noexcept;
};

/// What becomes of a device from its first day to its last: tells the scheduler when it is out of
/// service and when it is back, counts those in service, and sees to it that a model stays that a
/// probe runs. A value. Cost: that of `device_health`; allocates only in `add_*`. Thread safety:
/// none.
class device_service {
 public:
  /// @throws config_error If an option is outside its range.
  explicit device_service(const health_options& o) : health_{o} {}

  void add_pool(deferred::pool_id p) { pools_.add_pool(p); }
  /// A device that the scheduler has, idle.
  void add_device(device_id d, std::uint32_t capacity, deferred::pool_id p) {
    if (d.index() >= probed_with_.size()) probed_with_.resize(d.index() + 1);
    health_.add_device(d, capacity);
    pools_.add_device(d, p);
  }
  /// Gives a device no more work for good; what it has is still followed.
  template <device_matcher Scheduler>
  void remove_device(device_id d, Scheduler& scheduler, time_point now) noexcept {
    if (health_.is_in_service(d)) pools_.take_out(d);
    health_.remove_device(d);
    // Its id must not be another's while a probe may tell of it.
    if (!health_.is_probing(d)) scheduler.remove_device(d, now);
  }

  /// It hangs or fails: no more work until a probe succeeds.
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
  /// A model to probe it with, which stays until `end_probe`, if there is one.
  /// @param models `any_of(pool, behind)`, `begin_work(id)`: as `model_lives`.
  template <class Models>
  [[nodiscard]] std::optional<model_id> begin_probe(device_id d, Models& models) noexcept {
    // Another one than the last time, which may have failed by itself.
    const std::optional<model_id> with = models.any_of(pools_.of(d), probed_with_[d.index()]);
    if (!with) return std::nullopt;
    models.begin_work(*with);
    probed_with_[d.index()] = *with;
    return with;
  }
  /// That `begin_probe` has named.
  [[nodiscard]] model_id probed_with(device_id d) const noexcept {
    return *probed_with_[d.index()];
  }
  /// It was probed, or there is nothing to probe it with. @returns Whether it is back.
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

  /// Whether no other device of its pool is there, in service or not. O(devices).
  [[nodiscard]] bool is_only(device_id d) const noexcept {
    for (std::uint32_t i = 0; i < probed_with_.size(); ++i) {
      const device_id other{i};
      if (other != d && health_.is_present(other) && pools_.of(other) == pools_.of(d)) return false;
    }
    return true;
  }

  /// Of the batches that are sent and end, and of time.
  [[nodiscard]] device_health& health() noexcept { return health_; }
  [[nodiscard]] const device_health& health() const noexcept { return health_; }
  /// How many are in service.
  [[nodiscard]] const device_pools& pools() const noexcept { return pools_; }
  /// Whether requests for devices of a pool are to be handed back: none of them is in service, and
  /// that is what the options ask for.
  [[nodiscard]] bool hands_back(deferred::pool_id p) const noexcept {
    return health_.options().hands_back && !pools_.has_device(p);
  }

 private:
  device_health health_;
  device_pools pools_;
  std::vector<std::optional<model_id>> probed_with_;  // By device, the last time.
};

}  // namespace cohort::engine
