// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policies of `cohort pipeline` by name, and runs under one of them. Their table is in
/// staged_policy.cpp.
#pragma once

#include <formats/staged_model_file.hpp>

#include <cohort/core/time.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "name_list.hpp"

namespace cohort::registry {

/// The values of `cohort pipeline --policy`.
[[nodiscard]] const name_list& staged_policy_names();

/// A policy named by the user.
struct staged_policy : choice {
  bool has_rows = true;  ///< Its items are rows that run stage by stage.
};

/// @throws input_error If there is no such policy.
[[nodiscard]] staged_policy parse_staged_policy(std::string_view text);

/// Inputs of a run besides model and policy.
struct staged_settings {
  std::uint64_t seed = 1;
  duration overhead{};  ///< Added to every item.
  bool record_launches = false;
};

/// A model with its tables, reusable for many runs.
class staged_runner {
 public:
  explicit staged_runner(formats::staged_model_spec spec);
  staged_runner(const staged_runner&) = delete;  // The policy refers to the profile.
  staged_runner& operator=(const staged_runner&) = delete;

  [[nodiscard]] const formats::staged_model_spec& spec() const noexcept { return spec_; }
  [[nodiscard]] const batching::stage_profile& profile() const noexcept { return profile_; }
  /// Thread safety: full.
  [[nodiscard]] sim::staged_result run(
      const staged_policy& p, std::span<const sim::staged_arrival> arrivals,
      const staged_settings& o = {},
      const std::function<void(time_point)>& progress = [](time_point) {}) const;

 private:
  formats::staged_model_spec spec_;
  batching::stage_profile profile_;
  batching::diversity diversity_;
};

}  // namespace cohort::registry
