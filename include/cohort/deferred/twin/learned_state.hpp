// SPDX-License-Identifier: Apache-2.0
/// @file
/// A copy of all measurements of a scheduler: `learned_state`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_estimator.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/learned_latency.hpp>
#include <cohort/deferred/twin/settings.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>
#include <cohort/deferred/view.hpp>
#include <cohort/deferred/wake_lateness.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cohort::deferred {

/// A scheduler's measurements of models, devices and timers, for use elsewhere: on another thread,
/// in a file. A value.
struct learned_state {
  struct model {
    latency_estimator learned;
    double in_use = 1;  ///< Factor on the profile's ℓ(1) that decisions use.
  };
  struct device {
    device_id id;
    double factor = 1;  ///< How many times as long as elsewhere batches take; 1 unless known.
    std::uint32_t capacity = 1;  ///< Number of batches it may run at one time.
  };

  std::vector<model> models;    ///< In the order of the ids passed.
  std::vector<device> devices;  ///< Devices present.
  wake_lateness lateness;
  network_delays delays;  ///< As configured.
  bool learns = false;    ///< Whether decisions use learned latencies.
  struct tuning {
    settings present;
    tuning_rounds rounds;
  };
  std::optional<tuning> tuned;  ///< Only if the scheduler tunes itself.
};

/// Copies a scheduler's measurements. 3 KB a model; allocates. Call it on the scheduler's thread.
/// @tparam Scheduler Must have `models()`, `devices()`, `times()` and `lateness()`.
/// @param ids Models that it serves.
template <class Scheduler>
[[nodiscard]] learned_state copy_learned(const Scheduler& s, std::span<const model_id> ids) {
  learned_state out;
  out.models.reserve(ids.size());
  for (const model_id id : ids) {
    const learned_latency& l = s.models().latency(id);
    out.models.push_back({l.batches(), l.correction(1)});
  }
  for (device_id d{0}; s.devices().has_ever(d); d = device_id{d.value() + 1}) {
    if (!s.devices().has_device(d)) continue;
    out.devices.push_back({d, s.times().device_factor(d), s.capacity(d)});
  }
  out.lateness = s.lateness();
  out.delays = s.models().delays();
  out.learns = s.models().learns();
  if constexpr (requires { s.rounds(); }) out.tuned = {s.present(), s.rounds()};
  return out;
}

}  // namespace cohort::deferred
