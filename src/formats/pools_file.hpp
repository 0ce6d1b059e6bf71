// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads pools and classes of a workload's devices.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>

#include "json_reader.hpp"

namespace cohort::formats {

/// Reads the field `pools` of a workload with known models and devices.
/// @throws input_error As `read_workload`.
void read_pools(const json_cursor& at, sim::workload& w);

/// Reads its field `device_classes`.
void read_device_classes(const json_cursor& at, sim::workload& w);

/// Replaces the workload's pools by the result of `cohort subclusters`. Devices are divided evenly,
/// up to one.
/// @throws input_error If it is no such result, or for other models.
void read_subclusters(const std::string& path, sim::workload& w);

}  // namespace cohort::formats
