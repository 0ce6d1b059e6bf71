// SPDX-License-Identifier: Apache-2.0
/// @file
/// Carries out the steps from one plan to the next, while requests go on.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/plan_transition.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// One place where a model is served: an instance, which is a model of the engine's.
struct route {
  model_id instance;
  double rate_rps = 0;  ///< What the plan gives it: requests are shared out in these proportions.

  friend bool operator==(const route&, const route&) = default;
};

namespace requirement {
template <class H>
concept makes_partitions = requires(H& h, device_id gpu, device_share size, device_id d) {
  { h.create(gpu, size) } -> std::same_as<device_id>;
  h.destroy(d);
};
template <class H>
concept loads_and_unloads_models = requires(H& h, device_id d, model_id m) {
  { h.load(d, m) } -> std::same_as<model_id>;
  h.unload(d, m);
};
template <class H>
concept warms_up_models = requires(H& h, device_id d, model_id m) {
  h.warm_up(d, m);
  { h.is_warm(m) } -> std::same_as<bool>;
};
template <class H>
concept drains_models = requires(H& h, device_id d, model_id m) {
  h.drain(m);
  { h.is_drained(m) } -> std::same_as<bool>;
};
template <class H>
concept routes_models = requires(H& h, model_id m, std::span<const route> r) {
  h.set(m, r);
};
}  // namespace requirement

/// What has partitions. Semantics: `create` makes a partition of a GPU, without models. `load(d,
/// model)` makes an instance of a model there, which gets no requests, and returns its id;
/// `warm_up` starts to run it once, and `is_warm` tells when that has ended. `drain` starts to end
/// what an instance was given, and it is given no more; `is_drained` tells when nothing is left,
/// and then `unload` frees it. `destroy` removes a partition without instances. Models:
/// `partition_host`.
template <class H>
concept plan_host = requirement::makes_partitions<H> && requirement::loads_and_unloads_models<H> &&
    requirement::warms_up_models<H> && requirement::drains_models<H>;

/// What shares requests out. Semantics: when `set` returns, requests of the model go to these
/// instances and to no other. Models: `plan_router`.
template <class R>
concept routing = requirement::routes_models<R>;

/// Carries out transitions, step by step and in their order. A value: it owns no thread and
/// waits for nothing. Where a step must wait, `advance` returns, and is called again later: when
/// it suits the caller, as nothing depends on how soon. At every moment the plan in service is
/// that of the steps done so far, in which each model that the transition does not call
/// interrupted has a warm instance. Complexity: O(partitions · models) a step. Thread safety: none.
template <plan_host Host, routing Router>
class plan_applier {
 public:
  /// @param host, router Outlive the applier.
  plan_applier(Host& host, Router& router) : host_{host}, router_{router} {}

  /// Whether there is nothing left to do.
  [[nodiscard]] bool is_idle() const noexcept { return next_ == todo_.steps.size(); }
  /// What is in service; while not idle, what will be.
  [[nodiscard]] const std::vector<packing::live_gpulet>& live() const noexcept {
    return todo_.after;
  }

  /// Starts a transition, made from `live()`. Then call `advance` until it returns true.
  /// @throws config_error If the one before has not ended.
  void begin(packing::transition r) {
    expects(is_idle(), "plan_applier: the transition before must have ended");
    todo_ = std::move(r);
    next_ = 0;
    started_ = false;
  }

  /// Does steps until one must wait, or all are done. What the host throws goes through: the step
  /// is then not done, what is in service stays so, and the next call tries it again.
  /// @returns Whether all are done.
  bool advance() {
    while (!is_idle()) {
      if (!carry_out(todo_.steps[next_])) return false;
      ++next_;
      started_ = false;
    }
    return true;
  }

 private:
  using step = packing::transition_step;

  struct loaded_model {
    model_id model;
    model_id instance;
  };
  struct partition {
    packing::partition_id id;
    device_id device;
    std::vector<loaded_model> loaded{};
    std::vector<packing::placed_model> serving{};

    [[nodiscard]] model_id instance_of(model_id m) const noexcept {
      const auto at = std::ranges::find(loaded, m, &loaded_model::model);
      COHORT_ASSERT(at != loaded.end());
      return at->instance;
    }
  };

  /// @returns Whether it is done.
  bool carry_out(const step& s) {
    if (s.what == step::kind::create) {
      partitions_.reserve(partitions_.size() + 1);
      partitions_.push_back({.id = s.partition, .device = host_.create(s.gpu, s.size)});
      return true;
    }
    const auto at = std::ranges::find(partitions_, s.partition, &partition::id);
    COHORT_ASSERT(at != partitions_.end());
    partition& p = *at;
    switch (s.what) {
      case step::kind::load:
        p.loaded.reserve(p.loaded.size() + 1);
        p.loaded.push_back({.model = s.model, .instance = host_.load(p.device, s.model)});
        return true;
      case step::kind::warm_up:
        if (!std::exchange(started_, true)) host_.warm_up(p.device, p.instance_of(s.model));
        return host_.is_warm(p.instance_of(s.model));
      case step::kind::serve:
        serve(p, s.models);
        return true;
      case step::kind::drain:
        if (!std::exchange(started_, true)) host_.drain(p.instance_of(s.model));
        return host_.is_drained(p.instance_of(s.model));
      case step::kind::unload:
        host_.unload(p.device, p.instance_of(s.model));
        std::erase_if(p.loaded, [&s](const loaded_model& l) { return l.model == s.model; });
        return true;
      default:
        host_.destroy(p.device);
        partitions_.erase(at);
        return true;
    }
  }

  /// A partition serves these models from now on: new routes for them and for those before.
  void serve(partition& p, const std::vector<packing::placed_model>& models) {
    const std::vector<packing::placed_model> before = std::exchange(p.serving, models);
    std::vector<model_id> touched;
    for (const auto* list : {&before, &models}) {
      for (const packing::placed_model& m : *list) {
        if (std::ranges::find(touched, m.model) == touched.end()) touched.push_back(m.model);
      }
    }
    for (const model_id m : touched) {
      std::vector<route> routes;
      for (const partition& q : partitions_) {
        for (const packing::placed_model& x : q.serving) {
          if (x.model == m) routes.push_back({q.instance_of(m), x.rate_rps});
        }
      }
      router_.set(m, routes);
    }
  }

  Host& host_;
  Router& router_;
  std::vector<partition> partitions_;
  packing::transition todo_;
  std::size_t next_ = 0;
  bool started_ = false;  // The present step, which must wait for something.
};

}  // namespace cohort::engine
