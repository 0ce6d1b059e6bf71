// SPDX-License-Identifier: Apache-2.0
/// @file
/// Answers of the protocol's repository calls: a model's config and the repository's index as JSON.
#pragma once

#include "model_config.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace cohort::formats {

/// A config in the fields of config.pbtxt, integers as numbers; what it does not say is left out.
[[nodiscard]] std::string to_json(const model_config& c);

enum class version_state : std::uint8_t { loading, ready, unloading, unavailable };

/// A version of a model, or a model of which no version is known.
struct index_entry {
  std::string name;
  std::uint64_t version = 0;  ///< 0: left out.
  version_state state = version_state::ready;
  std::string reason{};  ///< Of `unavailable`; empty: left out.
};
/// An array of objects with name, version (a string), state and reason.
[[nodiscard]] std::string to_json(std::span<const index_entry> index);

}  // namespace cohort::formats
