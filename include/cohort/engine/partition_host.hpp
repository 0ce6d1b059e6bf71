// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes partitions of GPUs devices of a running engine.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/plan_applier.hpp>
#include <cohort/engine/plan_router.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A model as served by one partition: its configuration in the engine, and what its backend runs.
template <class Prepared>
struct partition_model {
  model_config config;
  Prepared prepared;  ///< The backend's `prepared_model`.
};

/// Measured latencies of a model of the grid on a partition of this size, for batches of at most
/// `max_batch`, times `factor`.
[[nodiscard]] inline latency_curve latency_on(const packing::latency_grid& grid, model_id m,
                                              device_share size,
                                              std::uint32_t max_batch = UINT32_MAX,
                                              double factor = 1) {
  struct measured_latency {
    const packing::latency_table* table;
    std::uint32_t size_pct;
    double factor;
    duration operator()(std::uint32_t batch) const noexcept {
      return from_seconds((*table)(batch, size_pct) * 1e-3 * factor);
    }
  };
  const packing::latency_table& table = grid.measured(m.index());
  return latency_curve{measured_latency{&table, size.percent(), factor},
                       std::min(max_batch, table.max_batch())};
}

/// Configuration of a model of the grid on a partition of this size: measured latencies, and its
/// SLO. If the partition is too small for the SLO, it gets a feasible one: requests have their own
/// deadlines.
/// @param capacity Of the partitions.
[[nodiscard]] inline model_config config_on(const packing::latency_grid& grid, model_id m,
                                            device_share size, std::uint32_t queue_capacity = 4096,
                                            std::uint32_t capacity = 1) {
  const latency_curve curve = latency_on(grid, m, size);
  return {.scheduling = {
              .latency = curve,
              .slo = std::max(from_seconds(grid.slo_ms(m.index()) * 1e-3), 2 * capacity * curve(1)),
              .queue_capacity = queue_capacity}};
}

namespace requirement {
template <class L, class B>
concept loads_partition_models = requires(L& load, model_id m, device_id gpu, device_share size) {
  { load(m, gpu, size) } -> std::same_as<partition_model<typename B::prepared_model>>;
};
}  // namespace requirement

/// An engine with pools that adds and removes models and devices while it runs. Semantics:
/// `add_device(setup, pool)` and `add_model(config, setup, pool)` call `setup(id)` on the engine's
/// thread before anything runs there; `remove_model(id, gone)` calls `gone()` there when its last
/// request has ended; `run_inside(action)` runs an action there and waits for it; `has_device(id)`
/// returns from any thread whether a device of the model's pool is in service, until the model is
/// gone. Models: `basic_engine` and `manual_engine` over a `deferred::basic_pooled_scheduler`.
template <class E>
concept pooled_engine = requires(E& e, void (*setup)(device_id), deferred::pool_id pool,
                                 std::uint32_t capacity, model_id id, void (*gone)(), device_id d,
                                 void (*action)()) {
  { e.add_device(setup, pool, capacity) } -> std::same_as<device_id>;
  e.remove_model(id, gone);
  e.remove_device(d);
  e.run_inside(action);
} && requires(E& e, model_config c, void (*setup)(model_id), deferred::pool_id pool) {
  { e.add_model(std::move(c), setup, pool) } -> std::same_as<model_id>;
} && requirement::tells_of_devices<E>;

/// A backend with partitions as devices. Semantics: `prepare_device(spec)` is slow, may run on any
/// thread, and returns a `prepared_device`; adding, taking away and warming up belong to the
/// engine's thread. `warm_up(model, device, done)` runs the model once, then completes `done`.
/// Models: `executor_backend`, `profile_backend`.
template <class B>
concept partition_backend = requires(B& b, const device_spec& spec, device_id d,
                                     typename B::prepared_device made, model_id id,
                                     runtime::completion& done) {
  { b.prepare_device(spec) } -> std::same_as<typename B::prepared_device>;
  b.add_device(d, std::move(made));
  b.take_device(d);
  b.warm_up(id, d, done);
} && requires(B& b, model_id id, device_id d, typename B::prepared_model made) {
  b.add_model(id, d, std::move(made));
  b.take_model(id, d);
};

/// Makes each partition a device of the engine, in its own pool, and each model loaded there a
/// model of the engine in that pool: an instance. So partitions do not share work, as planned, and
/// each instance drains separately. If a model makes partitions hang or fail, its instances are
/// suspended together (`model_config::counts_as`). Loading and freeing happen on the caller's
/// thread; the engine's thread only does quick steps. Thread safety: one thread, not the engine's.
/// @tparam Engine `pooled_engine`.  @tparam Backend `partition_backend`.
/// @tparam Loader `loader(model, gpu, size)` returns a `partition_model`; its exceptions pass
/// through `load`.
template <class Engine, class Backend, class Loader>
class partition_host {
  static_assert(pooled_engine<Engine>);  // As in `basic_engine`.
  static_assert(partition_backend<Backend>);
  static_assert(requirement::loads_partition_models<Loader, Backend>);

 public:
  /// @param engine, runner Must outlive the host. No other code may add to pools of the engine.
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
    devices_[d.index()] = {.gpu = gpu, .size = size, .pool = pool, .loaded = {}};
    pools_[pool] = true;
    return d;
  }

  model_id load(device_id d, model_id m) {
    partition& at = devices_[d.index()];
    at.loaded.reserve(at.loaded.size() + 1);
    auto made = loader_(m, at.gpu, at.size);
    made.config.counts_as = m;
    const model_id added = engine_.add_model(
        std::move(made.config),
        [&](model_id id) { backend_.add_model(id, d, std::move(made.prepared)); },
        pool_of(at.pool));
    if (added.index() >= instances_.size()) instances_.resize(added.index() + 1);
    instances_[added.index()] = std::make_unique<instance>();
    at.loaded.push_back(added);
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
    std::erase(devices_[d.index()].loaded, id);
  }
  void destroy(device_id d) {
    engine_.remove_device(d);
    take([&] { return backend_.take_device(d); });
    pools_[devices_[d.index()].pool] = false;
  }
  /// False if nothing is loaded there, as its state is then unknown.
  [[nodiscard]] bool is_out(device_id d) const noexcept {
    return std::ranges::any_of(devices_[d.index()].loaded,
                               [this](model_id id) { return !engine_.has_device(id); });
  }

 private:
  struct partition {
    device_id gpu;
    device_share size;
    std::size_t pool = 0;
    std::vector<model_id> loaded{};  // Ids in the engine.
  };
  struct instance : runtime::completion {
    std::atomic<bool> warm{false};
    std::atomic<bool> gone{false};
  };

  static deferred::pool_id pool_of(std::size_t i) noexcept {
    return deferred::pool_id{static_cast<std::uint32_t>(i)};
  }
  /// Takes an object away on the engine's thread, and destroys it here.
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
  std::vector<partition> devices_;                    // By the engine's device.
  std::vector<std::unique_ptr<instance>> instances_;  // By the engine's model.
  std::vector<bool> pools_;                           // Whether each is in use.
};

}  // namespace cohort::engine
