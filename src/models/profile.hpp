// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long the example models take, read from a file.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::models {

/// A model's rows of DIR/latency.csv (model,batch,partition_pct,latency_ms) for whole devices.
/// @throws config_error If the file cannot be read, is malformed, or lacks the model.
[[nodiscard]] std::vector<latency_point> read_profile(const std::string& dir,
                                                      const std::string& model);

}  // namespace cohort::models
