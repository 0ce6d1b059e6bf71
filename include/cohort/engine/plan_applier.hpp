// SPDX-License-Identifier: Apache-2.0
/// @file
/// Carries out the steps from one plan to the next, while requests go on.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/plan_transition.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::engine {

/// One place that serves a model: an instance, which is a model of the engine.
struct route {
  model_id instance;
  double rate_rps = 0;  ///< Planned rate: requests are distributed in these proportions.

  friend bool operator==(const route&, const route&) = default;
};

/// Owns partitions. Semantics: `create` makes a partition of a GPU, without models. `load(d,
/// model)` makes an instance of a model there, which gets no requests, and returns its id;
/// `warm_up` starts a first run, and `is_warm` returns whether that has ended. `drain` stops new
/// requests to an instance and lets the present ones end; `is_drained` returns whether none are
/// left, and then `unload` frees it. `destroy` removes a partition without instances. `is_out`
/// returns whether a partition hangs or fails, and so gets no work. None of them waits for a
/// partition. Models: `partition_host`.
template <class H>
concept plan_host = requires(H& h, device_id gpu, device_share size, device_id d, model_id m) {
  { h.create(gpu, size) } -> std::same_as<device_id>;
  h.destroy(d);
  { h.load(d, m) } -> std::same_as<model_id>;
  h.unload(d, m);
  h.warm_up(d, m);
  { h.is_warm(m) } -> std::same_as<bool>;
  h.drain(m);
  { h.is_drained(m) } -> std::same_as<bool>;
  { h.is_out(d) } -> std::same_as<bool>;
};

/// Distributes requests. Semantics: when `set` returns, requests of the model go only to these
/// instances. Models: `plan_router`.
template <class R>
concept routing = requires(R& h, model_id m, std::span<const route> r) { h.set(m, r); };

/// A partition that cannot be used at present.
struct sick_partition {
  device_id gpu;
  device_id partition;    ///< The host's id.
  bool warms_up = false;  ///< Out as a first run does not end; if false, the host says so.

  friend bool operator==(const sick_partition&, const sick_partition&) = default;
};

/// Carries out transitions, step by step in order. A value: it owns no thread, reads no clock and
/// never blocks. If a step must wait, `advance` returns and is called again later, at any time. At
/// every moment the plan in service is that of the completed steps, in which each model has a warm
/// instance unless the transition lists it as interrupted.
///
/// A partition is out if the host says so, or if a first run on it has not ended in time. Its GPU
/// is then set aside unchanged, with everything on it: no step waits for it any more. A first run
/// or drain in progress there keeps its share and its memory until it ends. The transition is cut
/// short, because it was made for other GPUs: steps in progress elsewhere are completed, and the
/// rest are dropped. Continue with one made from `live()` and `set_aside()`. Complexity:
/// O(partitions · models) a step. Thread safety: none.
template <plan_host Host, routing Router>
class plan_applier {
 public:
  /// @param host, router Must outlive the applier.
  /// @param longest_warm_up A first run that takes longer counts as hung; above 0. It may take
  /// seconds on a healthy GPU.
  /// @throws config_error If that is out of its range.
  plan_applier(Host& host, Router& router, duration longest_warm_up = std::chrono::seconds{10})
      : host_{host}, router_{router}, longest_warm_up_{longest_warm_up} {
    expects(longest_warm_up > duration{0}, "plan_applier: longest_warm_up must be above 0");
  }

  /// Whether there is nothing left to do.
  [[nodiscard]] bool is_idle() const noexcept { return next_ == steps_.size(); }
  /// Whether the last transition was cut short.
  [[nodiscard]] bool was_cut() const noexcept { return was_cut_; }
  /// All partitions in their present state.
  [[nodiscard]] std::vector<packing::live_gpulet> live() const {
    std::vector<packing::live_gpulet> all;
    for (const partition& p : partitions_) {
      packing::live_gpulet g{.id = p.id,
                             .what = {p.gpu, p.size, p.duty_ms, p.serving},
                             .is_out = p.state != health::well};
      for (const loaded_model& l : p.loaded) {
        if (!p.serves(l.model)) g.idle.push_back(l.model);
      }
      all.push_back(std::move(g));
    }
    return all;
  }
  /// GPUs that are left unchanged.
  [[nodiscard]] const std::vector<device_id>& set_aside() const noexcept { return set_aside_; }
  /// Partitions that are out; all of them on GPUs that are set aside.
  [[nodiscard]] std::vector<sick_partition> sick() const {
    std::vector<sick_partition> all;
    for (const partition& p : partitions_) {
      if (p.state != health::well) all.push_back({p.gpu, p.device, p.state == health::not_warm});
    }
    return all;
  }

  /// Starts a transition made from `live()` and `set_aside()`. Then call `advance` until it returns
  /// true. @throws config_error If the previous one has not ended.
  void begin(packing::transition t) {
    expects(is_idle(), "plan_applier: the transition before must have ended");
    steps_ = std::move(t.steps);
    next_ = 0;
    was_cut_ = false;
  }

  /// Checks which partitions are out, and does steps until one must wait or none are left.
  /// Exceptions of the host pass through: the step is then not done, the plan in service stays, and
  /// the next call tries again.
  /// @returns Whether none are left; then see `was_cut`.
  bool advance(time_point now) {
    look(now);
    while (!is_idle()) {
      if (!carry_out(steps_[next_], now)) return false;
      ++next_;
    }
    end_what_was_begun();
    return true;
  }

  /// Uses set-aside GPUs again if none of their partitions is out and everything in progress there
  /// has ended. Call it when idle. @returns Whether there was one.
  bool take_back() {
    expects(is_idle(), "plan_applier: the transition before must have ended");
    return std::erase_if(set_aside_, [this](device_id gpu) {
             return std::ranges::none_of(partitions_, [gpu](const partition& p) {
               return p.gpu == gpu && (p.state != health::well || p.is_busy());
             });
           }) > 0;
  }

 private:
  using step = packing::transition_step;
  using kind = step::kind;

  enum class phase : std::uint8_t { cold, warming, warm, draining };
  struct loaded_model {
    model_id model;
    model_id instance;
    phase is = phase::cold;
    time_point since{};  // While it warms up.
  };
  enum class health : std::uint8_t { well, out, not_warm };
  struct partition {
    packing::partition_id id;
    device_id gpu;
    device_share size;
    device_id device;  // The host's id.
    double duty_ms = 0;
    health state = health::well;
    std::vector<loaded_model> loaded{};
    std::vector<packing::placed_model> serving{};

    [[nodiscard]] bool serves(model_id m) const noexcept {
      return std::ranges::find(serving, m, &packing::placed_model::model) != serving.end();
    }
    [[nodiscard]] bool is_busy() const noexcept {
      return std::ranges::any_of(loaded, [](const loaded_model& l) {
        return l.is == phase::warming || l.is == phase::draining;
      });
    }
    [[nodiscard]] loaded_model& at(model_id m) noexcept {
      const auto found = std::ranges::find(loaded, m, &loaded_model::model);
      COHORT_ASSERT(found != loaded.end());
      return *found;
    }
  };

  [[nodiscard]] bool is_set_aside(device_id gpu) const noexcept {
    return std::ranges::find(set_aside_, gpu) != set_aside_.end();
  }
  [[nodiscard]] partition& find(const step& s) noexcept {
    const auto at = std::ranges::find(partitions_, s.partition, &partition::id);
    COHORT_ASSERT(at != partitions_.end());
    return *at;
  }

  /// Checks which partitions are out, and sets the GPUs of new ones aside.
  void look(time_point now) {
    bool is_new = false;
    for (partition& p : partitions_) {
      const bool is_late = std::ranges::any_of(p.loaded, [&](const loaded_model& l) {
        return l.is == phase::warming && now - l.since > longest_warm_up_ &&
               !host_.is_warm(l.instance);
      });
      p.state = host_.is_out(p.device) ? health::out : is_late ? health::not_warm : health::well;
      if (p.state == health::well || is_set_aside(p.gpu)) continue;
      set_aside_.push_back(p.gpu);
      is_new = true;
    }
    if (is_new) cut();
  }
  /// Drops all steps, except completing what the present one has begun on a healthy GPU.
  void cut() {
    if (is_idle()) return;
    was_cut_ = true;
    const step& s = steps_[next_];
    std::size_t rest = 0;
    if (!is_set_aside(s.gpu)) {
      if (s.what == kind::unload) rest = 1;
      if (s.what == kind::warm_up && find(s).at(s.model).is == phase::warming) rest = 1;
      if (s.what == kind::drain && find(s).at(s.model).is == phase::draining) rest = 2;  // Unloads.
    }
    steps_.resize(next_ + rest);
  }

  /// @returns Whether it is done.
  bool carry_out(const step& s, time_point now) {
    if (s.what == kind::create) {
      partitions_.reserve(partitions_.size() + 1);
      partitions_.push_back(
          {.id = s.partition, .gpu = s.gpu, .size = s.size, .device = host_.create(s.gpu, s.size)});
      return true;
    }
    partition& p = find(s);
    switch (s.what) {
      case kind::load:
        p.loaded.reserve(p.loaded.size() + 1);
        p.loaded.push_back({.model = s.model, .instance = host_.load(p.device, s.model)});
        return true;
      case kind::warm_up: {
        loaded_model& l = p.at(s.model);
        if (l.is == phase::cold) {
          host_.warm_up(p.device, l.instance);
          l.is = phase::warming;
          l.since = now;
        }
        if (l.is == phase::warming && host_.is_warm(l.instance)) l.is = phase::warm;
        return l.is == phase::warm;
      }
      case kind::serve:
        p.duty_ms = s.duty_ms;
        serve(p, s.models);
        return true;
      case kind::drain: {
        loaded_model& l = p.at(s.model);
        if (l.is != phase::draining) host_.drain(l.instance);
        l.is = phase::draining;
        return host_.is_drained(l.instance);
      }
      case kind::unload:
        host_.unload(p.device, p.at(s.model).instance);
        std::erase_if(p.loaded, [&s](const loaded_model& l) { return l.model == s.model; });
        return true;
      default:
        host_.destroy(p.device);
        std::erase_if(partitions_, [&s](const partition& x) { return x.id == s.partition; });
        return true;
    }
  }

  /// Ends what was in progress on GPUs that are set aside, as no step does.
  void end_what_was_begun() {
    for (partition& p : partitions_) {
      for (std::size_t i = 0; i < p.loaded.size(); ++i) {
        loaded_model& l = p.loaded[i];
        if (l.is == phase::warming && host_.is_warm(l.instance)) l.is = phase::warm;
        if (l.is != phase::draining || !host_.is_drained(l.instance)) continue;
        host_.unload(p.device, l.instance);
        p.loaded.erase(p.loaded.begin() + static_cast<std::ptrdiff_t>(i--));
      }
    }
  }

  /// Makes a partition serve these models: sets new routes for them and for its earlier ones.
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
      for (partition& q : partitions_) {
        for (const packing::placed_model& x : q.serving) {
          if (x.model == m) routes.push_back({q.at(m).instance, x.rate_rps});
        }
      }
      router_.set(m, routes);
    }
  }

  Host& host_;
  Router& router_;
  duration longest_warm_up_;
  std::vector<partition> partitions_;
  std::vector<device_id> set_aside_;
  std::vector<step> steps_;
  std::size_t next_ = 0;
  bool was_cut_ = false;
};

}  // namespace cohort::engine
