// SPDX-License-Identifier: Apache-2.0
/// @file
/// Says what was guessed of measured models.
#pragma once

#include <formats/profile_dir.hpp>

#include <fmt/format.h>

#include <cstdio>

namespace cohort::commands {

/// One line on standard error, if there is something to say.
inline void tell(const formats::profile_dir& profiles) {
  if (!profiles.note.empty()) fmt::print(stderr, "cohort: note: {}\n", profiles.note);
}

}  // namespace cohort::commands
