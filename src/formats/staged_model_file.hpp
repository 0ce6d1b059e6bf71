// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading MODEL.json, the model of `cohort pipeline`, and its requests.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile_check.hpp"

namespace cohort::formats {

/// A stage as the file gives it.
struct stage_spec {
  std::string name;
  bool recurs = false;  ///< Runs once for each unit of a request's size.
  std::vector<batching::stage_point> points;
};

/// A staged model: fields of MODEL.json with their defaults.
struct staged_model_spec {
  std::string name;
  std::uint32_t batch_max = 1;
  duration slo{};
  std::uint32_t buffer_sets = 2;
  bool parallel = false;
  std::vector<std::uint32_t> buckets;  ///< Padded sizes, ascending; empty: requests have no size.
  std::vector<stage_spec> stages;
  between_sizes between = between_sizes::step;  ///< What sizes between measured ones take.
  std::optional<duration> window{};
  std::optional<duration> tcomp_wait{};
  double split_tolerance = 0.01;
  batching::input_rule input = batching::input_rule::none;
  batching::split_rule split = batching::split_rule::none;
  batching::stretch_rule stretch = batching::stretch_rule::none;
  warnings repairs{};  ///< What was taken with a repair.

  /// Whole stages: those that recur as long as their requests are padded to.
  [[nodiscard]] batching::stage_profile profile() const;
  /// One step of those that recur.
  [[nodiscard]] batching::stage_profile step_profile() const;
  /// By stage and bucket: how many steps a request takes.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> steps() const;
};

/// @param file Named in errors.  @throws input_error If it is not a staged model.
[[nodiscard]] staged_model_spec parse_staged_model(const std::string& file, std::string_view text);

/// The bucket of each row of a CSV file with a column `size`. @param m Has sizes.
/// @throws input_error If there is no row, or a size is bad or above the last bucket.
[[nodiscard]] std::vector<std::uint32_t> parse_lengths(const std::string& file,
                                                       std::string_view text,
                                                       const staged_model_spec& m);

/// Arrivals of a CSV file with columns `time_ms` and, if the model has sizes, `size`.
/// @throws input_error If a row is bad or times decrease.
[[nodiscard]] std::vector<sim::staged_arrival> parse_staged_arrivals(const std::string& file,
                                                                     std::string_view text,
                                                                     const staged_model_spec& m);

/// Poisson arrivals; lengths are used in order and again from the start.
[[nodiscard]] std::vector<sim::staged_arrival> draw_staged_arrivals(
    double rate, std::uint64_t requests, std::uint64_t seed,
    const std::vector<std::uint32_t>& lengths);

}  // namespace cohort::formats
