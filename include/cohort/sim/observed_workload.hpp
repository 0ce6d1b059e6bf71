// SPDX-License-Identifier: Apache-2.0
/// @file
/// The workload of a running server, from its measurements: `observed_workload`.
#pragma once

#include <cohort/core/arrival_meter.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/noise_fit.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/learned_state.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::sim {

/// A server's knowledge of a model besides its scheduler's measurements.
struct served_model_facts {
  std::string name;
  latency_curve profile;  ///< As given to the scheduler.
  duration slo;
  std::uint32_t queue_capacity = 0;  ///< 0: unlimited.
  arrival_meter::load load{};
};

namespace detail {

/// The curve by a few points: those where its slope changes.
[[nodiscard]] inline table_latency as_table(const latency_curve& l) {
  std::vector<latency_point> points;
  const std::uint32_t last = l.max_batch();
  for (std::uint32_t b = 1; b <= last; ++b) {
    // Rounding bends a line by up to two nanoseconds.
    const bool is_straight =
        b > 1 && b < last && std::abs((l(b + 1) - l(b) - (l(b) - l(b - 1))).count()) <= 2;
    if (!is_straight) points.push_back({b, l(b)});
  }
  return table_latency{std::move(points)};
}

/// The arrival process for these measurements. Deviations that may be chance count as Poisson.
[[nodiscard]] inline own_arrivals process_of(const arrival_meter::load& l) {
  if (l.gaps < 32) return {};
  const double chance = 3 * std::sqrt(8.0 / static_cast<double>(l.gaps));
  if (std::abs(l.variability - 1) <= std::min(chance, 0.5)) return {};
  if (l.variability < 0.01) return {.process = arrival_process::uniform};
  return {.process = arrival_process::gamma, .shape = std::clamp(1 / l.variability, 0.001, 1000.0)};
}

}  // namespace detail

/// Makes a workload that `simulate` answers as the server would: its devices, models, load and
/// policy, and a `reality` that perturbs batches and timers as measured.
/// * A scheduler that learns gets the corrected profile, size by size. One that trusts its profile
///   gets that, and the correction becomes the models' `noise.bias`; so does one whose SLO does not
///   allow the corrected ℓ(1).
/// * A model with fewer than 32 batches measured since their level shifted has its profile and no
///   noise.
/// * Rates are shares; without any arrivals all shares are 1 and the rate is 0: not set.
/// * A device of capacity c counts as c devices that take c times as long, as if all its entries
///   were busy.
/// * A device slower than the others has a fault, `slow`, from the start. Warm-up and length are 5
///   s and 60 s.
/// @param facts As many as `known.models`, in their order; at least one.
/// @param response Mean time of a request's way to the scheduler and its result's way back.
/// @throws config_error If there is no model or no device.
[[nodiscard]] inline workload observed_workload(std::span<const served_model_facts> facts,
                                                const deferred::learned_state& known,
                                                duration response, policy_values policy) {
  expects(!facts.empty() && facts.size() == known.models.size(),
          "observed_workload: facts must be those of the models that are known");
  expects(!known.devices.empty(), "observed_workload: there must be a device");
  workload w;
  w.warmup = std::chrono::seconds{5};
  w.measured = std::chrono::seconds{60};
  w.policy = std::move(policy);
  w.network = known.delays;
  w.network.response = response;
  w.response_margin = known.delays.response;
  w.reality.timers = fit_lateness(known.lateness.distribution());

  std::uint32_t sharing = 1;
  for (const auto& d : known.devices) sharing = std::max(sharing, d.capacity);
  w.devices = 0;
  for (const auto& d : known.devices) {
    for (std::uint32_t i = 0; i < d.capacity; ++i) {
      const device_id id{w.devices++};
      if (d.factor < 1.01) continue;
      w.reality.faults.push_back(
          {.device = id, .kind = fault_kind::slow, .factor = std::min(d.factor, 1000.0)});
    }
  }

  for (std::size_t i = 0; i < facts.size(); ++i) {
    const served_model_facts& f = facts[i];
    const latency_estimator& learned = known.models[i].learned;
    noise_options noise = fit_noise(learned);
    const bool is_known = !noise.is_none();
    latency_curve told = f.profile.times(sharing);
    latency_curve corrected = told;
    corrected.follow(told, duration{0}, duration{0}, [&](std::uint32_t b) {
      return is_known ? noise.bias * learned.size_factor(b) : 1;
    });
    const deferred::network_delays& d = known.delays;
    if (known.learns && corrected(1) + d.before(1) + d.after() <= f.slo) {
      told = std::move(corrected);
      noise.bias = 1;
    }
    noise.bias = std::clamp(noise.bias, 1e-3, 100.0);
    w.reality.models.push_back(noise);
    w.rate += f.load.rate;
    w.models.push_back({.name = f.name,
                        .latency = detail::as_table(told),
                        .slo = f.slo,
                        .share = f.load.rate,
                        .max_batch = told.max_batch(),
                        .queue_capacity = f.queue_capacity,
                        .arrivals = detail::process_of(f.load)});
  }
  if (w.rate <= 0) {
    for (model_spec& m : w.models) m.share = 1;
  }
  return w;
}

}  // namespace cohort::sim
