// SPDX-License-Identifier: Apache-2.0
/// @file
/// Restores profiles and settings of an earlier start if they are still valid. Included by the
/// sources that put services together.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/engine/measure.hpp>

#include <fmt/format.h>
#include <models/identity.hpp>
#include <models/measured_model.hpp>
#include <models/quick_check.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <formats/profile_check.hpp>
#include <formats/warm_start_file.hpp>
#include "options.hpp"
#include "start_cache.hpp"

namespace cohort::inference {

/// The key of a model's profile: all fields that affect it.
/// @param platform Kind of executor. @param machine The hardware as far as it affects latencies.
/// @throws config_error If the model's weights cannot be read.
inline formats::start_key profile_key(const options& o, const std::string& model,
                                      const std::string& weights, const std::string& platform,
                                      const std::string& machine) {
  const models::model_identity m = models::identify(model, o.seed, weights);
  static const std::string program = models::fingerprint_of_file("/proc/self/exe");
  return {{"model", model},
          {"tensors", m.tensors},
          {"weights", m.weights},
          {"executor", platform},
          {"largest_batch", fmt::to_string(o.max_batch)},
          {key_machine, machine},
          // The program contains the kernels: another build may be faster.
          {key_program, program}};
}

/// The key of a scheduler's best settings: all fields that affect them, except the load. Nothing if
/// the scheduler does not tune itself.
/// @param models Their names and SLOs, as text.
inline std::optional<formats::start_key> settings_key(const options& o, const std::string& models,
                                                      const std::string& platform,
                                                      const std::string& machine,
                                                      unsigned devices) {
  if (!o.policy.tuning || !o.policy.tuning->is_on) return std::nullopt;
  const bool for_latency = o.policy.tuning->strive_for == deferred::objective::latency;
  return formats::start_key{
      {"models", models},
      {"policy", o.policy.name},
      {"objective", for_latency ? "latency" : "devices"},
      {"fairness", fmt::to_string(o.policy.tuning->fairness)},
      {"executor", platform},
      {"devices", fmt::to_string(devices)},
      {"largest_batch", fmt::to_string(o.max_batch)},
      {"pipeline",
       o.pipeline.empty() ? "none" : fmt::format("{} x {}", o.pipeline_entries, o.pipeline)},
      {key_machine, machine}};
}

/// Checks a kept profile by batches of 1 and of the largest size that takes no more than 10 ms.
/// @param stop Ends it early; may be null. @returns Why the profile is not valid; empty if it is.
template <class Executor>
std::string check_profile(const std::vector<formats::kept_point>& kept, std::uint32_t max_batch,
                          models::any_model_factory<Executor>& f, Executor& e,
                          models::run_stop* stop = nullptr) {
  const bool same_sizes = std::ranges::equal(kept, engine::measured_batches(max_batch), {},
                                             &formats::kept_point::batch);
  if (!same_sizes) return fmt::format("its batches are not 1, 2, 4, ... and {}", max_batch);
  // Batches are planned by medians, but a check compares the shortest times.
  constexpr double widest = 5;
  for (const formats::kept_point& p : kept) {
    if (p.median_ms > widest * p.least_ms) {
      return fmt::format("a batch of {} took {:.4g} ms, more than {} times the least, {:.4g}",
                         p.batch, p.median_ms, widest, p.least_ms);
    }
  }
  constexpr double longest_ms = 10;  // The check delays each start.
  const formats::kept_point* largest = &kept.front();
  for (const formats::kept_point& p : kept) {
    if (p.least_ms <= longest_ms) largest = &p;
  }
  models::measured_model<Executor> model{e, f, largest->batch, 0, stop};
  typename Executor::stream stream = e.make_stream();
  std::vector<const formats::kept_point*> sizes{&kept.front()};
  if (largest != sizes.front()) sizes.push_back(largest);
  for (const formats::kept_point* p : sizes) {
    (void)model.run(stream, p->batch);  // Warm-up.
    const models::checked_time c =
        models::quick_check(p->least_ms, [&] { return to_ms(model.run(stream, p->batch).busy); });
    if (c.how != models::drift::none) {
      return fmt::format("a batch of {} takes {:.4g} ms, at best of {} runs, not {:.4g}", p->batch,
                         c.least_ms, c.runs, p->least_ms);
    }
  }
  return {};
}

/// A warning if a model's medians fall as batches grow, where its table uses the largest before.
/// One line about the largest fall; nothing if none falls.
inline std::optional<std::string> fall_of(const std::string& model,
                                          const std::vector<formats::kept_point>& points) {
  const formats::kept_point* highest = nullptr;
  double most = 0;
  std::string line;
  for (const formats::kept_point& p : points) {
    if (highest == nullptr || p.median_ms >= highest->median_ms) {
      highest = &p;
      continue;
    }
    const double part = 1 - p.median_ms / highest->median_ms;
    if (part <= most) continue;
    most = part;
    line = fmt::format(
        "warning: measured latencies of model \"{}\" fall from batch {} to {} by {} %: such "
        "sizes take "
        "the largest before them",
        model, highest->batch, p.batch, formats::percent_of(part));
  }
  if (line.empty()) return std::nullopt;
  return line;
}

/// A model's profile and its source.
struct found_profile {
  std::vector<formats::kept_point> points;
  bool was_kept = false;
};

/// Returns the kept profile of the model if it is still valid; else measures and keeps one.
template <class Executor>
found_profile find_profile(start_cache& cache, const formats::start_key& key,
                           const std::string& name, std::uint32_t max_batch,
                           models::any_model_factory<Executor>& f, Executor& e) {
  if (auto kept = cache.find_profile(name, key)) {
    const std::string why = check_profile(*kept, max_batch, f, e);
    if (why.empty()) return {std::move(*kept), true};
    cache.warn(fmt::format("cache: {}: {}; ignored", cache.file_of("profile", name, key), why));
  }
  found_profile found;
  for (const engine::measured_batch& l :
       models::measure(f, e, {.max_batch = max_batch, .repeats = 5})) {
    found.points.push_back({l.batch, to_ms(l.median), to_ms(l.least)});
  }
  cache.keep_profile(name, {key, found.points});
  return found;
}

}  // namespace cohort::inference
