// SPDX-License-Identifier: Apache-2.0
/// @file
/// Limits and tuning of scheduling threads: `sharded_options`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/view.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cohort::engine {

/// Limits and tuning of a sharded scheduler.
struct sharded_options {
  std::uint32_t shards = 1;           ///< Model threads; at least 1.
  std::uint32_t max_models = 256;     ///< Ids that are ever used; at least 1.
  std::uint32_t inlet = 1 << 16;      ///< Requests on their way to one shard; at least 2.
  std::uint32_t device_capacity = 1;  ///< Batches that a device may run at one time; at least 1.
  /// How long an idle thread polls before it sleeps; at least 0.
  duration spin = std::chrono::microseconds{20};
  /// Core of the rank thread; model threads get the following ones. Below 0: not bound.
  int first_core = -1;
  deferred::network_delays delays{};
  deferred::learning learning{};

  static constexpr std::uint32_t most_devices = 4096;
  /// Maximum batches of devices: in each entry one running and one sent ahead.
  [[nodiscard]] std::size_t most_batches() const noexcept {
    return 2 * std::size_t{most_devices} * device_capacity;
  }

  /// @throws config_error If a field is outside its range.
  void validate() const {
    expects(shards > 0, "sharded_options: shards must be at least 1");
    expects(max_models > 0, "sharded_options: max_models must be at least 1");
    expects(inlet > 1, "sharded_options: inlet must be at least 2");
    expects(device_capacity > 0, "sharded_options: device_capacity must be at least 1");
    expects(spin >= duration{0}, "sharded_options: spin must be at least 0");
    learning.validate();
  }
};

}  // namespace cohort::engine
