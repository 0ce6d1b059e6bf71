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
  std::string notes;  ///< What is odd about it, in whole lines; may be empty.

  /// The models that are served, in the folder's order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] packing::transition_limits limits() const;
  /// Latencies on a partition, for batches up to `max_batch`, each `factor` times the measured one.
  [[nodiscard]] latency_curve latency(std::size_t model, device_share size, std::uint32_t max_batch,
                                      double factor) const;
  /// The largest partition that the plan gives the model.
  [[nodiscard]] device_share largest_size(std::size_t model) const;
};

/// Reads `o.plan` and `o.profile_dir`.
/// @throws config_error If one cannot be read or they disagree.
[[nodiscard]] served_plan read_plan(const options& o);

/// The packer that plans anew: that of the plan, for the models that it serves, none of which it
/// lets go for want of requests.
[[nodiscard]] packing::packing_result pack_again(const served_plan& p,
                                                 packing::packing_problem problem, duration period);

}  // namespace cohort::inference
