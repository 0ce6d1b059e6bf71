// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bytes that a model moves and operations that it does: counted, not measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "definition.hpp"

namespace cohort::models {

/// The traffic of one batch. Each operation counts its reads and writes once; a product of m × n ×
/// k counts 2 m n k operations, another operation one for each value that it writes.
struct traffic {
  double operations = 0;
  double bytes = 0;        ///< Bytes of all operations: traffic through the cache.
  double large_bytes = 0;  ///< Bytes of operations that touch more than fits the cache.
};

/// @param cache_bytes Size of the device's last cache.
[[nodiscard]] traffic count_traffic(const definition& d, std::uint32_t batch,
                                    std::size_t cache_bytes);

}  // namespace cohort::models
