// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tables of `cohort decode`: methods, next sequences, kernels.
#pragma once

#include <cohort/sim/llm/methods.hpp>

#include "name_table.hpp"

namespace cohort::registry {

/// A method with the library's name.
[[nodiscard]] consteval auto method_row(sim::decode_method m, std::string_view help) {
  return row{sim::to_string(m), help, m};
}

/// The values of --method.
inline constexpr name_table decode_methods{
    method_row(sim::decode_method::run_to_completion,
               "a group stays until its longest sequence ends"),
    method_row(sim::decode_method::pd, "the same, with prefill in groups of similar length"),
    method_row(sim::decode_method::shaping, "padded prompts enter the running batch"),
    method_row(sim::decode_method::orca, "unpadded prompts enter the running batch"),
    method_row(sim::decode_method::baton,
               "prompts are prefilled separately, then embedded in the running batch")};

/// The values of --pick.
inline constexpr name_table decode_picks{
    row{"fifo", "the oldest", sim::decode_pick::fifo},
    row{"best-fit", "the longest that fits the columns of the batch, else the shortest",
        sim::decode_pick::best_fit},
    row{"priority", "the highest priority, then the oldest", sim::decode_pick::priority}};

/// The values of --kernel: true means ragged rows.
inline constexpr name_table decode_kernels{
    row{"dense", "the columns of the longest row, for every row", false},
    row{"ragged", "each row's own columns", true}};

}  // namespace cohort::registry
