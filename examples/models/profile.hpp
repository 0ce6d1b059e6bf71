// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long the example models take on this host, measured or read from a file.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/host.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "registry.hpp"

namespace cohort::models {

/// How to measure.
struct measure_options {
  std::uint32_t max_batch = 16;  ///< Sizes: 1, 2, 4, ... and this; at least 1.
  int repeats = 9;               ///< Timed runs of each size, after one to warm up; at least 1.
};

/// The median latency of each batch size, on a stream of its own.
[[nodiscard]] std::vector<latency_point> measure(host_model_factory& f, runtime::host_executor& e,
                                                 const measure_options& o);

/// A model's rows of DIR/latency.csv (model,batch,partition_pct,latency_ms) for whole devices.
/// @throws config_error If the file cannot be read, is malformed, or lacks the model.
[[nodiscard]] std::vector<latency_point> read_profile(const std::string& dir,
                                                      const std::string& model);

}  // namespace cohort::models
