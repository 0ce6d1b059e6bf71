// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many bytes a model moves and how many operations it does: counted, not measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "definition.hpp"

namespace cohort::models {

/// Of one batch. Each operation counts what it reads and writes once; a product of m × n × k counts
/// 2 m n k operations, another operation one for each value that it writes.
struct traffic {
  double operations = 0;
  double bytes = 0;        ///< Of all operations: what passes through the cache.
  double large_bytes = 0;  ///< Of the operations that touch more than fits the cache at once.
};

/// @param cache_bytes Size of the device's last cache.
[[nodiscard]] traffic count_traffic(const definition& d, std::uint32_t batch,
                                    std::size_t cache_bytes);

}  // namespace cohort::models
