// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pools and classes of a workload's devices, as files say them.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>

#include "json_reader.hpp"

namespace cohort::formats {

/// The field `pools` of a workload whose models and devices are known.
/// @throws input_error As `read_workload`.
void read_pools(const json_cursor& at, sim::workload& w);

/// Its field `device_classes`.
void read_device_classes(const json_cursor& at, sim::workload& w);

/// Pools of models as an answer of `cohort subclusters` has them, instead of the workload's. Each
/// gets as many devices, or one more.
/// @throws input_error If the answer is none, or of other models.
void read_subclusters(const std::string& path, sim::workload& w);

}  // namespace cohort::formats
