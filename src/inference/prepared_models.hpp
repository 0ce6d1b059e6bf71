// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prepares the server's models on an executor: loads them, measures their latencies, and sets
/// their SLOs. Included by the sources that do so for one kind of executor each.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <formats/profile_dir.hpp>
#include <models/registry.hpp>
#include <registry/policy.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <serve/log.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "default_slo.hpp"
#include "model_service.hpp"
#include "options.hpp"
#include "start_cache.hpp"
#include "warm_start.hpp"

namespace cohort::inference {

/// A model without an id.
struct prepared_model {
  serve::model_meta meta;
  bool has_sizes = false;
  latency_curve latency;
  formats::start_key key{};  ///< Key of its profile; empty if none is kept.
  bool holds = false;        ///< Its profile was kept and is still valid.
  std::string config{};      ///< As in `served_model`.
};

/// The result of `prepare`.
struct prepared_models {
  std::vector<prepared_model> models;
  registry::policy policy;  ///< Starts with the best settings of earlier starts.
  std::optional<kept_settings> settings;
  std::shared_ptr<start_cache> cache;
  std::string notes;
};

inline void check_names(const options& o, const std::vector<std::string>& known) {
  const auto check = [&](const std::string& option, const std::string& name) {
    if (std::ranges::find(known, name) == known.end()) {
      throw config_error{fmt::format("{}: model '{}' is unknown: expected one of {}", option, name,
                                     fmt::join(known, ", "))};
    }
  };
  for (const std::string& m : o.models) check("--models", m);
  for (const auto& [m, slo] : o.slo_ms) check("--slo-ms", m);
  for (const auto& [m, file] : o.weights) check("--weights", m);
}

/// Makes a model's factory from a file of weights, or with random weights if the path is empty.
template <class Executor>
using make_factory_function = std::function<std::unique_ptr<models::any_model_factory<Executor>>(
    const std::string& name, Executor& e, const std::string& weights)>;

/// Inputs of a server of staged models, besides its options.
template <class Executor>
struct staged_parts {
  std::string description;
  std::string platform;
  std::string machine;  ///< Describes the hardware as far as it affects latencies.
  std::unique_ptr<Executor> executor;
  unsigned devices;
  make_factory_function<Executor> make_factory;
};

/// Starts the policy with the settings kept for such a server, unless the user gave some.
inline void warm_settings(prepared_models& p, const options& o, const std::string& platform,
                          const std::string& machine, unsigned devices,
                          const std::shared_ptr<start_cache>& cache) {
  std::string served;
  for (const prepared_model& m : p.models) {
    served += fmt::format("{}{} {} ms", served.empty() ? "" : ", ", m.meta.name, to_ms(m.meta.slo));
  }
  const auto key = settings_key(o, served, platform, machine, devices);
  if (!key) return;
  const std::optional<deferred::settings> kept = cache->find_settings(*key);
  if (kept && !o.has_settings) {
    p.policy.tuning->initial = *kept;
    p.notes += fmt::format("settings: --window {} --quantile {} as kept in {}\n",
                           deferred::name_of(kept->window), kept->quantile, cache->folder());
  }
  p.settings = kept_settings{*key, cache, p.policy.tuning->initial};
}

/// The names of the models to serve. @throws config_error If one is not among `known`.
inline std::vector<std::string> chosen_models(const options& o,
                                              std::span<const std::string_view> known,
                                              std::span<const std::string_view> by_default) {
  check_names(o, {known.begin(), known.end()});
  if (!o.models.empty()) return o.models;
  return {by_default.begin(), by_default.end()};
}

/// An executor and the weights on it, which must outlive the backend.
template <class Executor>
struct resources {
  std::unique_ptr<Executor> executor;
  std::vector<std::unique_ptr<models::any_model_factory<Executor>>> factories;
};
/// The measured latencies of a model.
struct profile_points {
  std::vector<latency_point> expected;
  std::vector<latency_point> least;
};

/// Reads a model's profile from a folder. @throws config_error If it is missing or not valid.
inline std::vector<latency_point> given_profile(const std::string& dir, const std::string& name) {
  formats::warnings repairs;
  try {
    std::vector<latency_point> points = formats::read_whole_device(dir, name, repairs);
    for (const std::string& w : repairs) serve::log_warning(w);
    return points;
  } catch (const formats::input_error& e) {
    throw config_error{fmt::format("--profile: {}", e.what())};
  }
}

/// Sets the SLOs of models without one. They are only targets: no request is dropped for them.
/// @param slower As in `default_slo_of`. @param least Minimum of these SLOs.
/// @returns The reasons, one line for each.
inline std::string set_default_slos(std::vector<prepared_model>& models,
                                    const std::vector<profile_points>& points,
                                    std::uint32_t capacity, double slower,
                                    duration least = duration{0}) {
  std::string lines;
  for (std::size_t i = 0; i < models.size(); ++i) {
    serve::model_meta& m = models[i].meta;
    if (m.slo > duration{0}) continue;
    const std::uint32_t most = models[i].latency.max_batch();
    const latency_curve best{table_latency{at_best(points[i].least)}, most};
    const default_slo d = default_slo_of(
        {best(std::max(1U, most / 2)), best(most), models[i].latency(1)}, capacity, slower);
    lines += aim_at(m, d, least) + '\n';
  }
  return lines;
}

/// The sources of these models' profiles, one line per source.
inline std::string describe_profiles(const std::vector<std::string>& kept,
                                     const std::vector<std::string>& measured,
                                     const start_cache& cache) {
  std::string lines;
  if (!kept.empty()) {
    lines =
        fmt::format("profiles: {} as kept in {}, checked\n", fmt::join(kept, ", "), cache.folder());
  }
  if (!measured.empty()) lines += fmt::format("profiles: {} measured\n", fmt::join(measured, ", "));
  return lines;
}

/// Loads the models into `made`, and measures those without a known profile.
/// @param capacity Batches that share a device, for the default SLOs.
template <class Executor>
prepared_models prepare(const options& o, const std::vector<std::string>& names,
                        const staged_parts<Executor>& with, resources<Executor>& made,
                        std::uint32_t capacity) {
  const auto cache = std::make_shared<start_cache>(o.cache_dir, serve::log_warning);
  prepared_models out{
      .models = {}, .policy = o.policy, .settings = {}, .cache = cache, .notes = {}};
  std::vector<profile_points> profiles;
  std::vector<std::string> kept;
  std::vector<std::string> measured;
  std::string repairs;
  for (const std::string& name : names) {
    const auto given = o.weights.find(name);
    const std::string weights = given == o.weights.end() ? "" : given->second;
    made.factories.push_back(with.make_factory(name, *made.executor, weights));
    models::any_model_factory<Executor>& factory = *made.factories.back();
    profile_points points;
    formats::start_key key;
    bool holds = false;
    if (o.profile_dir.empty()) {
      key = cache->is_on() ? profile_key(o, name, weights, with.platform, with.machine)
                           : formats::start_key{};
      const found_profile found =
          find_profile(*cache, key, name, o.max_batch, factory, *made.executor);
      holds = found.was_kept;
      (holds ? kept : measured).push_back(name);
      if (const auto falls = fall_of(name, found.points)) repairs += *falls + '\n';
      for (const formats::kept_point& p : found.points) {
        points.expected.push_back({p.batch, from_ms(p.median_ms)});
        points.least.push_back({p.batch, from_ms(p.least_ms)});
      }
    } else {
      points.expected = points.least = given_profile(o.profile_dir, name);
    }
    for (latency_point& p : points.expected) {
      p.latency = from_ms(to_ms(p.latency) * o.profile_margin);
    }
    const auto slo = o.slo_ms.find(name);
    const models::model_interface& info = factory.info();
    out.models.push_back(
        {.meta = {.name = name,
                  .platform = with.platform,
                  .inputs = info.inputs,
                  .outputs = info.outputs,
                  .slo = slo == o.slo_ms.end() ? duration{0} : from_ms(slo->second)},
         .has_sizes = models::has_sizes(info),
         .latency = latency_curve{table_latency{points.expected}, o.max_batch},
         .key = std::move(key),
         .holds = holds});
    profiles.push_back(std::move(points));
  }
  // On machines with other work, medians are up to 1.4 times the shortest times.
  out.notes = set_default_slos(out.models, profiles, capacity, std::max(1.5, o.profile_margin));
  out.notes += describe_profiles(kept, measured, *cache) + repairs;
  if (cache->is_on()) warm_settings(out, o, with.platform, with.machine, with.devices, cache);
  return out;
}

}  // namespace cohort::inference
