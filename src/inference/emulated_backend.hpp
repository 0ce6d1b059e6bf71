// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend of the emulated executor, on machines that behave as --reality says.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <utility>

#include <formats/reality_file.hpp>
#include <formats/text.hpp>
#include "options.hpp"

namespace cohort::inference {

/// @param devices Number of devices or, with a plan, of partitions.
/// @throws config_error If --reality is not valid for the devices of a server.
inline std::unique_ptr<engine::profile_backend> make_emulated_backend(const options& o,
                                                                      std::uint32_t devices) {
  if (o.reality.empty()) return std::make_unique<engine::profile_backend>();
  const auto read = [&] {
    try {
      return formats::read_reality(o.reality, devices);
    } catch (const formats::input_error& e) {
      throw config_error{fmt::format("--reality: {}", e.what())};
    }
  };
  formats::reality_spec r = read();
  expects(r.load.empty(),
          "--reality: load: only for simulations: a server's load comes from clients");
  expects(r.machines.timers.is_none(),
          "--reality: timers: only for simulations: a server uses this machine's timers");
  return std::make_unique<engine::profile_backend>(std::move(r.machines), o.seed);
}

}  // namespace cohort::inference
