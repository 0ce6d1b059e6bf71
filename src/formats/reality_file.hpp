// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the `reality` of WORKLOAD.json, in place or from a separate file.
#pragma once

#include <cohort/core/reality.hpp>
#include <cohort/sim/load_steps.hpp>

#include <cstdint>
#include <string>

#include "json_reader.hpp"

namespace cohort::formats {

/// How machines differ from their profiles, and the offered rate from the configured one.
struct reality_spec {
  cohort::reality machines;
  sim::load_steps load;
};

/// Reads the `noise` of one model of a workload.
[[nodiscard]] noise_options parse_model_noise(const json_cursor& at);

/// Reads the object. @param devices Faults are for device ids below this.
/// @throws input_error If it is not valid, naming the first wrong place.
[[nodiscard]] reality_spec parse_reality(const json_cursor& at, std::uint32_t devices);

/// Reads it from a file, or from standard input if `path` is "-".
[[nodiscard]] reality_spec read_reality(const std::string& path, std::uint32_t devices);

}  // namespace cohort::formats
