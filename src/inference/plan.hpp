// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan that a server carries out, printed by `cohort pack --json`, with its profiles.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <formats/demand_file.hpp>
#include <formats/profile_dir.hpp>
#include <registry/pack_algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "options.hpp"

namespace cohort::inference {

/// A plan with the profiles that it was made from.
struct served_plan {
  formats::profile_dir profiles;
  formats::schedule schedule;
  std::shared_ptr<const packing::latency_grid> grid;
  registry::pack_algorithm algorithm;
  /// By model of the folder: whether this plan, and thus each later one, serves it.
  std::vector<bool> is_served;
  std::uint32_t max_batch = 1;  ///< Largest batch: --max-batch, or the largest measured.
  /// By model of the folder: its largest batch, and the longest time that a request waits for
  /// others; `max_batch` and `unbounded` unless config.pbtxt sets less.
  std::vector<std::uint32_t> most_batch{};
  std::vector<duration> longest_wait{};
  std::string notes;  ///< Notes on oddities of the plan, in whole lines; may be empty.

  /// The served models in the folder's order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] packing::transition_limits limits() const;
  /// Latencies on a partition: `factor` times the measured ones.
  [[nodiscard]] latency_curve latency(model_id model, device_share size, double factor) const;
  /// The largest partition that the plan gives the model.
  [[nodiscard]] device_share largest_size(std::size_t model) const;
  /// The smallest rates to plan for, so that served models keep a place in later plans: one request
  /// per period each, but at most one per second.
  [[nodiscard]] std::vector<double> least_rps(duration period) const;
  /// Makes a new plan with the packer of this one.
  [[nodiscard]] packing::packing_result pack(const packing::packing_problem& problem) const;
};

/// Reads the files `o.plan` and `o.profile_dir`.
/// @throws config_error If one of them cannot be read or they disagree.
[[nodiscard]] served_plan read_plan(const options& o);

}  // namespace cohort::inference
