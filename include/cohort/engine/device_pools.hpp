// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts the devices in service of each pool: `device_pools`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace cohort::engine {

/// Finds the pool among the extra arguments for a scheduler with pools; others have one pool.
[[nodiscard]] constexpr deferred::pool_id pool_among() noexcept { return {}; }
template <class First, class... More>
[[nodiscard]] constexpr deferred::pool_id pool_among(First first, More... /*more*/) noexcept {
  if constexpr (std::is_same_v<First, deferred::pool_id>) {
    return first;
  } else {
    return {};
  }
}

/// Counts the devices in service of each pool. A value. O(1) a call; allocates only in `add_*`.
/// Thread safety: none.
class device_pools {
 public:
  /// Adds a pool, with or without devices.
  void add_pool(deferred::pool_id p) {
    if (p.index() >= in_service_.size()) in_service_.resize(p.index() + 1);
  }
  /// Adds a device in service; its id may have belonged to a removed one.
  void add_device(device_id d, deferred::pool_id p) {
    if (d.index() >= pool_of_.size()) pool_of_.resize(d.index() + 1);
    pool_of_[d.index()] = p;
    add_pool(p);
    put_back(d);
  }
  void put_back(device_id d) noexcept { change(d, 1); }
  void take_out(device_id d) noexcept { change(d, ~std::uint32_t{0}); }

  [[nodiscard]] deferred::pool_id of(device_id d) const noexcept { return pool_of_[d.index()]; }
  [[nodiscard]] bool has_device(deferred::pool_id p) const noexcept { return devices(p) > 0; }
  /// Number of devices in service.
  [[nodiscard]] std::uint32_t devices(deferred::pool_id p) const noexcept {
    return in_service_[p.index()];
  }
  /// Changes whenever a result of `has_device` does.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }

 private:
  void change(device_id d, std::uint32_t by) noexcept {
    std::uint32_t& n = in_service_[of(d).index()];
    const bool had_none = n == 0;
    n += by;  // Modulo 2^32.
    if (had_none != (n == 0)) ++changes_;
  }

  std::vector<deferred::pool_id> pool_of_;  // By device.
  std::vector<std::uint32_t> in_service_;   // By pool.
  std::uint64_t changes_ = 0;
};

}  // namespace cohort::engine
