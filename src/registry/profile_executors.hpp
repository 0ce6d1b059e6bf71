// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of executors for `cohort profile` and `cohort interference`.
#pragma once

#include <models/timed_model.hpp>
#include <models/timed_pair.hpp>

#include <memory>
#include <string>
#include <string_view>

#include "name_table.hpp"

namespace cohort::registry {

/// `make(plan)` returns a model that can be timed.
template <class Make = nothing>
struct profile_executor_row {
  std::string_view name;
  std::string_view help;
  Make make{};
  std::string (*why_not)();  ///< Why it is not possible here; empty if it is.
  bool is_fast;              ///< `all` includes the large models.
  std::unique_ptr<models::timed_pair> (*make_pair)(const models::pair_timing_plan&);
  bool (*are_apart)(device_share, device_share);  ///< Whether partitions share nothing.
  name_parameter parameter{};
};

/// The values of --executor.
inline constexpr name_table profile_executors{
    profile_executor_row{.name = "host",
                         .help = "the cores of this machine",
                         .make = models::time_on_host,
                         .why_not = [] { return std::string{}; },
                         .is_fast = false,
                         .make_pair = models::pair_on_host,
                         .are_apart = models::are_apart_on_host},
    profile_executor_row{.name = "cuda",
                         .help = "a GPU",
                         .make = models::time_on_gpu,
                         .why_not = models::why_no_gpu,
                         .is_fast = true,
                         .make_pair = models::pair_on_gpu,
                         .are_apart = models::are_apart_on_gpu}};

}  // namespace cohort::registry
