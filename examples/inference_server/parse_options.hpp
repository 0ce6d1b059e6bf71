// SPDX-License-Identifier: Apache-2.0
/// @file
/// The command line of the inference server.
#pragma once

#include <inference/options.hpp>

namespace cohort::inference {

/// Parses the command line. For --help, --version and errors (status 2, one line) it prints and
/// exits.
[[nodiscard]] options parse_options(int argc, char** argv);

}  // namespace cohort::inference
