// SPDX-License-Identifier: Apache-2.0
/// @file
/// Partitions of devices as devices of a running engine.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/plan_applier.hpp>
#include <cohort/packing/latency_grid.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A model as one partition serves it: how the engine schedules it, and what its backend runs.
template <class Prepared>
struct partition_model {
  model_config config;
  Prepared prepared;  ///< The backend's `prepared_model`.
};

/// How a partition of this size runs a model of the grid: measured latencies, and its SLO. A
/// partition too small for the SLO gets one that it can keep: deadlines are the requests' own.
/// @param capacity Of the partitions.
[[nodiscard]] inline model_config config_on(const packing::latency_grid& grid, model_id m,
                                            device_share size, std::uint32_t queue_capacity = 4096,
                                            std::uint32_t capacity = 1) {
  struct measured_latency {
    const packing::latency_table* table;
    std::uint32_t size_pct;
    duration operator()(std::uint32_t batch) const noexcept {
      return from_seconds((*table)(batch, size_pct) * 1e-3);
    }
  };
  const packing::latency_table& table = grid.measured(m.index());
  const latency_curve curve{measured_latency{&table, size.percent()}, table.max_batch()};
  return {.scheduling = {
              .latency = curve,
              .slo = std::max(from_seconds(grid.slo_ms(m.index()) * 1e-3), 2 * capacity * curve(1)),
              .queue_capacity = queue_capacity}};
}

/// Makes each partition a device of the engine, in a pool of its own, and each model loaded there
/// a model of the engine's that belongs to that pool: an instance. So partitions do not share work,
/// as planned, and what is drained is one instance. Loading and freeing happen on the caller's
/// thread; the engine's does what takes no time. Thread safety: one thread, not the engine's.
/// @tparam Engine Over a `deferred::basic_pooled_scheduler`: `basic_engine` or `manual_engine`.
/// @tparam Backend `executor_backend` or `profile_backend`: what it prepares, it adds and takes
///                 away.
/// @tparam Loader `loader(model, gpu, size)` gives a `partition_model`. May throw `config_error`.
template <class Engine, class Backend, class Loader>
class partition_host {
 public:
  /// @param engine, runner Outlive the host. Nothing else adds to pools of the engine.
  /// @param capacity Of each partition.
  partition_host(Engine& engine, Backend& runner, Loader loader, std::uint32_t capacity = 1)
      : engine_{engine}, backend_{runner}, loader_{std::move(loader)}, capacity_{capacity} {}

  device_id create(device_id gpu, device_share size) {
    auto made = backend_.prepare_device({.gpu = gpu, .share = size, .capacity = capacity_});
    const auto free = std::ranges::find(pools_, false);
    const auto pool = static_cast<std::size_t>(free - pools_.begin());
    if (free == pools_.end()) pools_.push_back(false);
    const device_id d = engine_.add_device(
        [&](device_id id) { backend_.add_device(id, std::move(made)); }, pool_of(pool), capacity_);
    if (d.index() >= devices_.size()) devices_.resize(d.index() + 1);
    devices_[d.index()] = {.gpu = gpu, .size = size, .pool = pool};
    pools_[pool] = true;
    return d;
  }

  model_id load(device_id d, model_id m) {
    const partition& at = devices_[d.index()];
    auto made = loader_(m, at.gpu, at.size);
    const model_id added = engine_.add_model(
        std::move(made.config),
        [&](model_id id) { backend_.add_model(id, d, std::move(made.prepared)); },
        pool_of(at.pool));
    if (added.index() >= instances_.size()) instances_.resize(added.index() + 1);
    instances_[added.index()] = std::make_unique<instance>();
    return added;
  }

  void warm_up(device_id d, model_id id) {
    instance& x = *instances_[id.index()];
    x.invoke = [](runtime::completion& c, bool) noexcept {
      static_cast<instance&>(c).warm.store(true, std::memory_order_release);
    };
    engine_.run_inside([&] { backend_.warm_up(id, d, x); });
  }
  [[nodiscard]] bool is_warm(model_id id) const noexcept {
    return instances_[id.index()]->warm.load(std::memory_order_acquire);
  }

  void drain(model_id id) {
    engine_.remove_model(
        id, [x = instances_[id.index()].get()] { x->gone.store(true, std::memory_order_release); });
  }
  [[nodiscard]] bool is_drained(model_id id) const noexcept {
    return instances_[id.index()]->gone.load(std::memory_order_acquire);
  }

  void unload(device_id d, model_id id) {
    take([&] { return backend_.take_model(id, d); });
    instances_[id.index()].reset();
  }
  void destroy(device_id d) {
    engine_.remove_device(d);
    take([&] { return backend_.take_device(d); });
    pools_[devices_[d.index()].pool] = false;
  }

 private:
  struct partition {
    device_id gpu;
    device_share size;
    std::size_t pool = 0;
  };
  struct instance : runtime::completion {
    std::atomic<bool> warm{false};
    std::atomic<bool> gone{false};
  };

  static deferred::pool_id pool_of(std::size_t i) noexcept {
    return deferred::pool_id{static_cast<std::uint32_t>(i)};
  }
  /// Takes something away on the engine's thread, and destroys it here.
  template <class F>
  void take(F away) {
    if constexpr (std::is_void_v<decltype(away())>) {
      engine_.run_inside(away);
    } else {
      decltype(away()) taken{};
      engine_.run_inside([&] { taken = away(); });
    }
  }

  Engine& engine_;
  Backend& backend_;
  Loader loader_;
  std::uint32_t capacity_;
  std::vector<partition> devices_;                    // By device of the engine.
  std::vector<std::unique_ptr<instance>> instances_;  // By model of the engine.
  std::vector<bool> pools_;                           // Which are in use.
};

}  // namespace cohort::engine
