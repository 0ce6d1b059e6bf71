// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files of `pack`: demands and schedules.
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

/// An application of several models, with its name in the demand.
struct named_application {
  std::string name;
  packing::application what;
};

/// A demand for the models of a profile folder.
struct demand {
  std::uint32_t gpus = 1;
  std::uint32_t max_gpulets_per_gpu = 2;
  std::vector<std::uint32_t> sizes{20, 40, 50, 60, 80, 100};
  double memory_mb = std::numeric_limits<double>::infinity();
  std::vector<double> rates_rps;   ///< By model of the folder, including applications.
  std::vector<double> slos_ms;     ///< By model of the folder; the folder's unless overridden.
  std::vector<std::size_t> named;  ///< The models that the demand names, in its order.
  std::vector<named_application> applications;  ///< Their SLOs are split into `slos_ms`.
};

/// A schedule, as `pack --json` prints it.
struct schedule {
  std::string algorithm;  ///< Empty if not given.
  bool schedulable = true;
  double burst_margin = 0;
  formats::demand demand;
  bool interference = false;
  packing::slo_rule rule = packing::slo_rule::own;
  packing::plan plan;
};

/// The models of the folder with the demand's SLOs, for a grid of its sizes: models that it does
/// not name need not be measured at these sizes; missing values are filled in.
[[nodiscard]] std::vector<packing::model_profile> models_for(const demand& d,
                                                             const profile_dir& profiles);
/// @param where Name for errors.  @throws input_error If the text is not a demand for these models.
[[nodiscard]] demand parse_demand(const std::string& where, std::string_view text,
                                  const profile_dir& profiles);
/// Whether the schedule was planned with interference, by its own field.
[[nodiscard]] bool schedule_has_interference(const std::string& where, std::string_view text);
/// @throws input_error If the text is not a schedule for these models. Does not check its promises.
[[nodiscard]] schedule parse_schedule(const std::string& where, std::string_view text,
                                      const profile_dir& profiles);

/// Checks that a server with these profiles can serve a schedule: it is schedulable, its SLOs are
/// those of the folder, and its gpu-lets are within its GPUs, sizes and memory and have models of
/// its demand, each once, at measured batches.
/// @throws input_error With place and name of the contradiction.
void check_can_serve(const std::string& where, const schedule& s, const profile_dir& profiles);

}  // namespace cohort::formats
