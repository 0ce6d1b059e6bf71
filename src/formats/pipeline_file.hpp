// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads stages.json: how the server's models are cut into pipelines.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline_options.hpp>
#include <cohort/batching/slicer.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

/// How a model runs as a pipeline.
struct pipeline_plan {
  batching::slicing ends{};  ///< Operators per stage; empty: cut by the slicer.
  std::size_t wanted = 0;    ///< Stages for the slicer; 0: the best number by trial.
  std::uint32_t buffer_sets = 2;
  batching::entry_rule entry = batching::entry_rule::stage_free;
  /// Padded input sizes, in elements, ascending; empty: the model's whole input.
  std::vector<std::uint32_t> sizes{};
  batching::diversity_options policies{};
};

/// Default policies of a model with sizes, as in MODEL.json.
inline constexpr batching::diversity_options sized_policies{
    .input = batching::input_rule::filled,
    .split = batching::split_rule::none,
    .stretch = batching::stretch_rule::none};

/// Default sizes: an eighth, a quarter, half and all of the model's largest.
[[nodiscard]] std::vector<std::uint32_t> usual_sizes(std::uint32_t largest);

/// Parses {"MODEL": {"stages": [2, 1, 3], "buffer_sets": 2, "entry": "stage_free", "sizes": [16,
/// 64], "policies": ["operator", "load"]}}; each field is optional. `stages` is the numbers of
/// operators of each stage, or the number of stages for the slicer, or "auto": by trial.
/// @param file Name for errors.  @throws config_error If it is something else.
[[nodiscard]] std::map<std::string, pipeline_plan> parse_pipelines(const std::string& file,
                                                                   std::string_view text);
/// Reads a file likewise; none for "auto".
[[nodiscard]] std::map<std::string, pipeline_plan> read_pipelines(const std::string& path);

}  // namespace cohort::formats
