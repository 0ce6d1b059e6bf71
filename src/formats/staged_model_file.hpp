// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads MODEL.json, the model of `cohort pipeline`, and its requests.
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

/// A stage in the file.
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
  between_sizes between = between_sizes::step;  ///< Times of sizes between measured ones.
  std::optional<duration> window{};
  std::optional<duration> tcomp_wait{};
  double split_tolerance = 0.01;
  batching::input_rule input = batching::input_rule::none;
  batching::split_rule split = batching::split_rule::none;
  batching::stretch_rule stretch = batching::stretch_rule::none;
  warnings repairs{};  ///< Repairs of the input.

  /// Times of whole stages: recurrent ones for the padded lengths.
  [[nodiscard]] batching::stage_profile profile() const;
  /// Times of one step of recurrent stages.
  [[nodiscard]] batching::stage_profile step_profile() const;
  /// By stage and bucket: number of steps of a request.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> steps() const;
};

/// @param file Name for errors.  @throws input_error If it is not a staged model.
[[nodiscard]] staged_model_spec parse_staged_model(const std::string& file, std::string_view text);

/// The bucket of each row of a CSV file with a column `size`. @param m Must have sizes.
/// @throws input_error If there is no row, or a size is bad or above the last bucket.
[[nodiscard]] std::vector<std::uint32_t> parse_lengths(const std::string& file,
                                                       std::string_view text,
                                                       const staged_model_spec& m);

/// Parses arrivals from a CSV file with columns `time_ms` and, if the model has sizes, `size`.
/// @throws input_error If a row is bad or times decrease.
[[nodiscard]] std::vector<sim::staged_arrival> parse_staged_arrivals(const std::string& file,
                                                                     std::string_view text,
                                                                     const staged_model_spec& m);

/// Draws Poisson arrivals; lengths are used in order, repeatedly.
[[nodiscard]] std::vector<sim::staged_arrival> draw_staged_arrivals(
    double rate, std::uint64_t requests, std::uint64_t seed,
    const std::vector<std::uint32_t>& lengths);

}  // namespace cohort::formats
