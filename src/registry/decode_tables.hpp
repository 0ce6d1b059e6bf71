// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tables of `cohort decode`: methods, who enters next, kernels.
#pragma once

#include <cohort/sim/llm/methods.hpp>

#include "name_table.hpp"

namespace cohort::registry {

/// A method that has its name from the library.
[[nodiscard]] consteval auto method_row(sim::decode_method m, std::string_view help) {
  return row{sim::to_string(m), help, m};
}

/// The values of --method.
inline constexpr name_table decode_methods{
    method_row(sim::decode_method::run_to_completion, "groups, in which all stay for the longest"),
    method_row(sim::decode_method::pd, "the same, prefilled apart in groups of similar length"),
    method_row(sim::decode_method::shaping, "prompts enter the running batch, padded"),
    method_row(sim::decode_method::orca, "prompts enter the running batch as they are"),
    method_row(sim::decode_method::baton,
               "prompts are prefilled apart, then embedded in the running batch")};

/// Of --pick.
inline constexpr name_table decode_picks{
    row{"fifo", "the first that came", sim::decode_pick::fifo},
    row{"best-fit", "the longest that fits the columns of the batch, else the shortest",
        sim::decode_pick::best_fit},
    row{"priority", "the most important, then the first", sim::decode_pick::priority}};

/// Of --kernel: whether rows are ragged.
inline constexpr name_table decode_kernels{
    row{"dense", "the columns of the longest row, in all rows", false},
    row{"ragged", "each row's own columns", true}};

}  // namespace cohort::registry
