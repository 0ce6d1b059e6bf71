// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's config as JSON, as clients read it.
#pragma once

#include "model_config.hpp"

#include <string>

namespace cohort::formats {

/// A config in the fields of config.pbtxt, integers as numbers. Fields that clients look for are
/// there even if the config does not have them.
/// @param runs_on The kind of its instances where the config leaves that to the server.
[[nodiscard]] std::string to_json(const model_config& c,
                                  instance_kind runs_on = instance_kind::cpu);

}  // namespace cohort::formats
