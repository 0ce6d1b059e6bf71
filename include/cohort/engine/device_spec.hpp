// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a backend must know of a device before it has an id: `device_spec`.
#pragma once

#include <cohort/core/ids.hpp>

#include <cstdint>

namespace cohort::engine {

/// A device of an engine, as its backend makes it.
struct device_spec {
  device_id gpu{};             ///< Which of the backend's executors runs it.
  device_share share{};        ///< Of that GPU's compute.
  std::uint32_t capacity = 1;  ///< As the scheduler is told: batches at one time; at least 1.
};

}  // namespace cohort::engine
