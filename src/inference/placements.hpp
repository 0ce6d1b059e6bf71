// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the models of a server with a plan are placed, for its metrics.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/plan_applier.hpp>
#include <cohort/engine/plan_router.hpp>
#include <cohort/serve/metrics.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "service_observer.hpp"

namespace cohort::inference {

/// Maps the engine's devices and models, which with a plan are partitions and instances, to the
/// devices and models that they belong to. Thread safety: `model_of`, `device_of` and `changed`
/// from any thread, for ids noted before; the rest from the thread that carries out plans.
class placements {
 public:
  /// Maximum instances, and maximum partitions, at one time.
  static constexpr std::size_t most = 4096;

  /// @param names Names of the models. @param counters Must outlive this.
  placements(std::vector<std::string> names, serve::metrics& counters)
      : names_{std::move(names)},
        counters_{counters},
        models_{std::make_unique<std::atomic<std::uint32_t>[]>(most)},
        devices_{std::make_unique<std::atomic<std::uint32_t>[]>(most)} {}

  [[nodiscard]] model_id model_of(model_id instance) const noexcept {
    return model_id{models_[instance.index()].load(std::memory_order_relaxed)};
  }
  [[nodiscard]] device_id device_of(device_id partition) const noexcept {
    return device_id{devices_[partition.index()].load(std::memory_order_relaxed)};
  }

  /// @throws resource_error If there are more than `most`.
  void made(device_id partition, device_id device, device_share size) {
    if (partition.index() >= most) throw resource_error{"plan: too many partitions at one time"};
    devices_[partition.index()].store(device.value(), std::memory_order_relaxed);
    if (partition.index() >= sizes_.size()) sizes_.resize(partition.index() + 1);
    sizes_[partition.index()] = size;
    const std::lock_guard lock{states_mutex_};
    is_there_.resize(std::max<std::size_t>(is_there_.size(), partition.index() + 1));
    is_there_[partition.index()] = true;
    show(partition, engine::device_state::healthy);
  }
  void gone(device_id partition) {
    const std::lock_guard lock{states_mutex_};
    is_there_[partition.index()] = false;
    for (const engine::device_state s : states) {
      counters_.device_state.remove(labels_of(partition, s));
    }
  }
  /// A partition's state has changed; the partition may have gone meanwhile. Any thread.
  void changed(device_id partition, engine::device_state now) const {
    const std::lock_guard lock{states_mutex_};
    if (partition.index() < is_there_.size() && is_there_[partition.index()]) show(partition, now);
  }
  void loaded(model_id instance, model_id model, device_id partition) {
    models_[instance.index()].store(model.value(), std::memory_order_relaxed);
    loaded_.push_back({instance, model, partition});
    show(loaded_.back(), 0);
  }
  void unloaded(model_id instance) {
    const auto at = std::ranges::find(loaded_, instance, &place::instance);
    counters_.unplace(names_[at->model.index()], device_of(at->partition), at->partition.value(),
                      sizes_[at->partition.index()].percent());
    loaded_.erase(at);
  }
  /// The model's requests now go to these instances.
  void routed(model_id model, std::span<const engine::route> routes) {
    for (const place& p : loaded_) {
      if (p.model != model) continue;
      const auto to = std::ranges::find(routes, p.instance, &engine::route::instance);
      show(p, to == routes.end() ? 0 : to->rate_rps);
    }
  }

 private:
  static constexpr std::array states{engine::device_state::healthy,
                                     engine::device_state::quarantined};

  struct place {
    model_id instance;
    model_id model;
    device_id partition;
  };
  [[nodiscard]] serve::metric_labels labels_of(device_id partition, engine::device_state s) const {
    return {{"device", std::to_string(device_of(partition).value())},
            {"partition", std::to_string(partition.value())},
            {"state", std::string{to_string(s)}}};
  }
  void show(device_id partition, engine::device_state now) const {
    for (const engine::device_state s : states) {
      counters_.device_state.set(labels_of(partition, s), s == now ? 1 : 0);
    }
  }
  void show(const place& p, double rate_rps) {
    counters_.place(names_[p.model.index()], device_of(p.partition), p.partition.value(),
                    sizes_[p.partition.index()].percent(), rate_rps);
  }

  std::vector<std::string> names_;
  serve::metrics& counters_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> models_;   // By instance.
  std::unique_ptr<std::atomic<std::uint32_t>[]> devices_;  // By partition.
  std::vector<device_share> sizes_;                        // By partition.
  std::vector<place> loaded_;
  mutable std::mutex states_mutex_;  // Guards the next member and the gauge of states.
  std::vector<bool> is_there_;       // By partition.
};

/// A plan host that records its actions in `placements`. @tparam Host Models `plan_host`.
template <engine::plan_host Host>
class noting_host {
 public:
  noting_host(Host& host, placements& notes) : host_{host}, notes_{notes} {}

  device_id create(device_id gpu, device_share size) {
    const device_id made = host_.create(gpu, size);
    notes_.made(made, gpu, size);
    return made;
  }
  void destroy(device_id d) {
    host_.destroy(d);
    notes_.gone(d);
  }
  model_id load(device_id d, model_id m) {
    const model_id instance = host_.load(d, m);
    notes_.loaded(instance, m, d);
    return instance;
  }
  void unload(device_id d, model_id instance) {
    host_.unload(d, instance);
    notes_.unloaded(instance);
  }
  void warm_up(device_id d, model_id instance) { host_.warm_up(d, instance); }
  [[nodiscard]] bool is_warm(model_id instance) { return host_.is_warm(instance); }
  void drain(model_id instance) { host_.drain(instance); }
  [[nodiscard]] bool is_drained(model_id instance) { return host_.is_drained(instance); }
  [[nodiscard]] bool is_out(device_id d) { return host_.is_out(d); }

 private:
  Host& host_;
  placements& notes_;
};

/// A router that records its routes in `placements`.
class noting_router : public engine::plan_router {
 public:
  noting_router(std::size_t models, placements& notes) : plan_router{models}, notes_{notes} {}
  void set(model_id m, std::span<const engine::route> routes) {
    plan_router::set(m, routes);
    notes_.routed(m, routes);
  }

 private:
  placements& notes_;
};

/// Counts batches by model and device instead of instance and partition.
struct placements_observer : null_observer {
  serve::metrics* into = nullptr;
  const placements* notes = nullptr;
  suspensions* suspended = nullptr;
  void model_suspended(model_id m, duration lasts, time_point) const noexcept {
    suspended->note(notes->model_of(m), lasts);
    into->suspensions.add(1, notes->model_of(m).index());
  }
  void dispatched(dispatch_event e, time_point) noexcept {
    e.model = notes->model_of(e.model);
    e.device = notes->device_of(e.device);
    into->dispatched(e);
  }
  void retried(const request& r, time_point) const noexcept {
    into->retries.add(1, notes->model_of(r.model).index());
  }
  void stray_end() const noexcept { into->stray_ends.add(1); }
  /// Only the partition changes: others on its GPU may be healthy.
  void device_changed(device_id d, engine::device_state s, std::string_view why,
                      time_point) const noexcept {
    const device_id gpu = notes->device_of(d);
    into->device_changes.add(1, gpu.index(), s == engine::device_state::healthy ? 1 : 0);
    try {
      notes->changed(d, s);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // No memory for it; the log has it.
    }
    log_device(gpu, s, why, d);
  }
  void probe_hung(device_id d, time_point) const noexcept {
    const device_id gpu = notes->device_of(d);
    into->hung_probes.add(1, gpu.index());
    log_device(gpu, engine::device_state::quarantined, hung_probe, d);
  }
};
static_assert(observer<placements_observer>);

}  // namespace cohort::inference
