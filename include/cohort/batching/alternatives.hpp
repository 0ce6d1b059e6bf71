// SPDX-License-Identifier: Apache-2.0
/// @file
/// Simpler variants of a policy, for comparison: `alternatives`.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/stage_profile.hpp>

#include <cstdint>
#include <vector>

namespace cohort::batching {

/// The policy with parts of its rules, from the simplest to the policy itself: no rules and one row
/// at a time, which is zero-batch; zero-batch with a delay of a fraction of a single request's
/// time; input diversity alone; operator diversity without load diversity and the reverse; and the
/// policy. All share its tables.
/// @param lanes Rows that can run side by side; with several, one at a time is tried, too.
[[nodiscard]] inline std::vector<diversity> alternatives(const diversity& policy,
                                                         const stage_profile& profile,
                                                         std::uint32_t lanes) {
  const diversity_options& whole = policy.options();
  diversity_options o = whole;
  o.input = input_rule::none;
  o.split = split_rule::none;
  o.stretch = stretch_rule::none;
  o.most_rows = 1;
  std::vector<diversity> out{policy.with(o)};
  for (const int part : {8, 2}) {
    o.delay = profile.total(1) / part;
    out.push_back(policy.with(o));
  }
  o.delay = {};
  const bool has_input = whole.input != input_rule::none;
  const bool has_split = whole.split != split_rule::none;
  const bool has_stretch = whole.stretch != stretch_rule::none;
  if (has_input && lanes > 1) {
    o.input = whole.input;
    out.push_back(policy.with(o));
    o.input = input_rule::none;
  }
  o.most_rows = 0;
  if (lanes > 1 && (has_input || has_split || has_stretch)) out.push_back(policy.with(o));
  if (has_input && (has_split || has_stretch)) {
    o.input = whole.input;
    out.push_back(policy.with(o));
  }
  if (has_split && has_stretch) {
    o.split = whole.split;
    out.push_back(policy.with(o));
    o.split = split_rule::none;
    o.stretch = whole.stretch;
    out.push_back(policy.with(o));
  }
  out.push_back(policy);
  return out;
}

}  // namespace cohort::batching
