// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inference server's command line.
#pragma once

#include <inference/options.hpp>

namespace cohort::inference {

/// Reads the command line. Prints and ends the program for --help, --version and mistakes (status
/// 2, one line).
[[nodiscard]] options parse_options(int argc, char** argv);

}  // namespace cohort::inference
