// SPDX-License-Identifier: Apache-2.0
/// @file
/// The plan that a server serves, as `cohort pack --json` printed it, with its profiles.
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

/// A plan with the profiles that it was made for.
struct served_plan {
  formats::profile_dir profiles;
  formats::schedule schedule;
  std::shared_ptr<const packing::latency_grid> grid;
  registry::pack_algorithm algorithm;
  /// By model of the folder: whether the plan serves it, and so plans to come must.
  std::vector<bool> is_served;
  std::uint32_t max_batch = 1;  ///< Largest batch that is run: --max-batch, or the measured ones.
  /// By model of the folder: its largest batch, and how long a request waits for others at most;
  /// `max_batch` and `unbounded` where no config.pbtxt says less.
  std::vector<std::uint32_t> most_batch{};
  std::vector<duration> longest_wait{};
  std::string notes;  ///< What is odd about it, in whole lines; may be empty.

  /// The models that are served, in the folder's order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] packing::transition_limits limits() const;
  /// Latencies on a partition, each `factor` times the measured one.
  [[nodiscard]] latency_curve latency(model_id model, device_share size, double factor) const;
  /// The largest partition that the plan gives the model.
  [[nodiscard]] device_share largest_size(std::size_t model) const;
  /// What keeps the models that it serves a place in the plans to come: a request a period each,
  /// but not more than one a second.
  [[nodiscard]] std::vector<double> least_rps(duration period) const;
  /// Plans anew, by the packer of the plan.
  [[nodiscard]] packing::packing_result pack(const packing::packing_problem& problem) const;
};

/// Reads `o.plan` and `o.profile_dir`.
/// @throws config_error If one cannot be read or they disagree.
[[nodiscard]] served_plan read_plan(const options& o);

}  // namespace cohort::inference
