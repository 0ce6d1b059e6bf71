// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `pack` reads and writes: demands, and schedules.
#pragma once

#include "profile_dir.hpp"

#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/request_graph.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

/// An application of several models, as a demand names it.
struct named_application {
  std::string name;
  packing::application what;
};

/// A demand, against the models of a profile folder.
struct demand {
  std::uint32_t gpus = 1;
  std::uint32_t max_gpulets_per_gpu = 2;
  std::vector<std::uint32_t> sizes{20, 40, 50, 60, 80, 100};
  double memory_mb = std::numeric_limits<double>::infinity();
  std::vector<double> rates_rps;   ///< By model of the folder; those of applications included.
  std::vector<double> slos_ms;     ///< By model of the folder; its own unless the demand says.
  std::vector<std::size_t> named;  ///< The models that the demand names, in its order.
  std::vector<named_application> applications;  ///< Their SLOs are split into `slos_ms`.
};

/// A schedule, as `pack --json` prints it.
struct schedule {
  std::string algorithm;  ///< Empty if it does not say.
  bool schedulable = true;
  double burst_margin = 0;
  formats::demand demand;
  bool interference = false;
  packing::slo_rule rule = packing::slo_rule::own;
  packing::plan plan;
};

/// The models of the folder with the demand's SLOs, for a grid of its sizes: models that it does
/// not name need not have been measured at them, and are filled in where they were not.
[[nodiscard]] std::vector<packing::model_profile> models_for(const demand& d,
                                                             const profile_dir& profiles);
/// @param where Named in errors.  @throws input_error If the text is not a demand for these models.
[[nodiscard]] demand parse_demand(const std::string& where, std::string_view text,
                                  const profile_dir& profiles);
/// Whether the schedule says that it was planned with interference.
[[nodiscard]] bool schedule_has_interference(const std::string& where, std::string_view text);
/// @throws input_error If the text is not a schedule for these models. What it promises is not
///         checked.
[[nodiscard]] schedule parse_schedule(const std::string& where, std::string_view text,
                                      const profile_dir& profiles);

/// Checks that a schedule is one that a server with these profiles can serve: that it is
/// schedulable, that its SLOs are those of the folder, and that its gpu-lets are within its GPUs,
/// sizes and memory and have models of its demand, each once, at batches that were measured.
/// @throws input_error With the place and name of what disagrees.
void check_can_serve(const std::string& where, const schedule& s, const profile_dir& profiles);

}  // namespace cohort::formats
