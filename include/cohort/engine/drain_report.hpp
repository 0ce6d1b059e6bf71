// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is left of an engine that is drained: `drain_report`.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>

namespace cohort::engine {

/// A snapshot; as a server's last line says it, `left N requests and M devices that hang`.
struct drain_report {
  std::size_t requests = 0;         ///< That were accepted and have no outcome yet.
  std::size_t hanging_devices = 0;  ///< That have not let go of a batch: who destroys the backend
                                    ///< waits for them.

  [[nodiscard]] constexpr bool is_clean() const noexcept {
    return requests == 0 && hanging_devices == 0;
  }
  friend constexpr bool operator==(const drain_report&, const drain_report&) = default;
};

}  // namespace cohort::engine
