// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's config as JSON, as clients read it.
#pragma once

#include "model_config.hpp"

#include <string>

namespace cohort::formats {

/// A config in the fields of config.pbtxt, integers as numbers. Fields that clients look for are
/// there even if the config does not have them.
[[nodiscard]] std::string to_json(const model_config& c);

}  // namespace cohort::formats
