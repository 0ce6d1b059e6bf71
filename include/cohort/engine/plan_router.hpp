// SPDX-License-Identifier: Apache-2.0
/// @file
/// Routes each request to one of the instances of its model.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/engine/plan_applier.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

namespace cohort::engine {

namespace requirement {
template <class E>
concept tells_of_devices = requires(const E& e, model_id m) {
  { e.has_device(m) } -> std::same_as<bool>;
};
}  // namespace requirement

/// Accepts requests. Semantics: `submit(r, now...)` accepts a request or returns why not, leaving
/// it unchanged; `waiting(model)` is a snapshot of the number of waiting requests; the optional
/// `has_device(model)` returns whether a device that runs the model is in service. Thread safety:
/// as the use requires. Models: `basic_engine` and `manual_engine`, which know the time themselves,
/// and `basic_loop`, with one `time_point`.
template <class E, class... Now>
concept request_acceptor = requires(const E& e, model_id m) {
  { e.waiting(m) } -> std::convertible_to<double>;
} && requires(E& e, request& r, Now... now) {
  { e.submit(r, now...) } -> std::same_as<std::optional<refusal>>;
};

/// Whether a request that ended `failed` in an instance may move to another one: once after the
/// instance failed it, and also if the instance never ran it for lack of a device in service.
/// @param was_failed Whether an instance has failed it before; set if one has now.
[[nodiscard]] inline bool may_move(const request& r, bool has_device, bool& was_failed) noexcept {
  if (r.is_unfit || r.is_spent) return false;
  const bool was_tried = r.failed_on.has_value();
  if (was_tried ? was_failed : has_device) return false;
  was_failed |= was_tried;
  return true;
}

/// An engine without one instance: to `plan_router::submit` a request which that instance failed.
/// Thread safety: the engine's.
template <class Engine>
struct elsewhere {
  Engine& engine;
  model_id not_here;

  [[nodiscard]] std::optional<refusal> submit(request& r) const { return engine.submit(r); }
  [[nodiscard]] auto waiting(model_id m) const noexcept { return engine.waiting(m); }
  [[nodiscard]] bool has_device(model_id m) const noexcept {
    return m != not_here && engine.has_device(m);
  }
};

/// Where each model is served, and the way there. A request goes to the instance with the fewest
/// waiting requests for its planned rate, and to the others in turn if refused; never to one
/// without a working device. `set` waits for submissions in progress: once it has returned, no
/// request is on its way to an instance without a route, so draining it loses none. Thread safety:
/// any thread; a shared lock is held for one submission. Complexity: O(instances of the model);
/// submitting allocates nothing.
class plan_router {
 public:
  /// @param models Number of models, numbered from 0.
  explicit plan_router(std::size_t models) : routes_(models) {}

  /// Routes requests of the model only to these instances from now on.
  void set(model_id m, std::span<const route> routes) {
    std::vector<route> fresh(routes.begin(), routes.end());
    const std::unique_lock lock{mutex_};
    expects(m.index() < routes_.size(), "plan_router: unknown model");
    routes_[m.index()].swap(fresh);
  }
  [[nodiscard]] std::vector<route> routes(model_id m) const {
    const std::shared_lock lock{mutex_};
    return routes_[m.index()];
  }

  /// Requests of the model that wait for a batch in any of its instances: a snapshot.
  template <request_acceptor Engine>
  [[nodiscard]] std::uint32_t waiting(const Engine& engine, model_id m) const {
    const std::shared_lock lock{mutex_};
    std::uint32_t sum = 0;
    for (const route& to : routes_[m.index()]) sum += engine.waiting(to.instance);
    return sum;
  }

  /// Submits a request of model `m` to the engine: `engine.submit(r, now...)`. If it is accepted,
  /// `r.model` becomes the instance; if not, it is unchanged.
  /// @returns The last instance's refusal; `unknown_model` if there is none, `no_device` if none
  /// has a device.
  template <class... Now, request_acceptor<Now...> Engine>
  [[nodiscard]] std::optional<refusal> submit(Engine& engine, request& r, model_id m,
                                              Now... now) const {
    const std::shared_lock lock{mutex_};
    if (m.index() >= routes_.size()) return refusal::unknown_model;
    const std::vector<route>& all = routes_[m.index()];
    const model_id asked = r.model;
    const route* best = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const route& to : all) {
      if (!can_run(engine, to.instance)) continue;
      const double load = (engine.waiting(to.instance) + 1.0) / std::max(to.rate_rps, 1e-9);
      if (load >= least) continue;
      least = load;
      best = &to;
    }
    std::optional<refusal> why = all.empty() ? refusal::unknown_model : refusal::no_device;
    if (best != nullptr) {
      r.model = best->instance;
      why = engine.submit(r, now...);
    }
    for (std::size_t i = 0; why && i < all.size(); ++i) {
      if (&all[i] == best || !can_run(engine, all[i].instance)) continue;
      r.model = all[i].instance;
      why = engine.submit(r, now...);
    }
    if (why) r.model = asked;
    return why;
  }

  /// Whether some instance of the model has a device in service.
  template <requirement::tells_of_devices Engine>
  [[nodiscard]] bool has_device(const Engine& engine, model_id m) const {
    const std::shared_lock lock{mutex_};
    return std::ranges::any_of(routes_[m.index()],
                               [&](const route& to) { return engine.has_device(to.instance); });
  }

 private:
  template <class Engine>
  [[nodiscard]] static bool can_run(const Engine& engine, model_id instance) {
    if constexpr (requirement::tells_of_devices<Engine>) {
      return engine.has_device(instance);
    } else {
      return true;
    }
  }

  mutable std::shared_mutex mutex_;
  std::vector<std::vector<route>> routes_;  // By model.
};
static_assert(routing<plan_router>);

}  // namespace cohort::engine
