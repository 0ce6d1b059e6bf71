// SPDX-License-Identifier: Apache-2.0
/// @file
/// Answers to the protocol's repository calls as JSON: a model's config and the repository's index.
#pragma once

#include "model_config.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace cohort::formats {

/// A config with the fields of config.pbtxt, integers as numbers; unset ones are omitted.
[[nodiscard]] std::string to_json(const model_config& c);

enum class version_state : std::uint8_t { loading, ready, unloading, unavailable };

/// A version of a model, or a model without known versions.
struct index_entry {
  std::string name;
  std::uint64_t version = 0;  ///< 0: omitted.
  version_state state = version_state::ready;
  std::string reason{};  ///< For `unavailable`; empty: omitted.
};
/// An array of objects with name, version (a string), state and reason.
[[nodiscard]] std::string to_json(std::span<const index_entry> index);

}  // namespace cohort::formats
