// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which other files an ONNX model names for its weights, told before anything opens them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace cohort::runtime::onnx::detail {

/// The locations of external data in a model's bytes, in order, each once. Reads the structure of
/// the message alone, whatever its weights are: O(messages), recursing at most 100 deep.
/// @throws config_error If the bytes are no whole message of an ONNX model; does not name the file.
[[nodiscard]] std::vector<std::string> external_locations(std::span<const std::byte> model);

/// @throws config_error If a location is not below the folder of its model: it is empty, absolute
/// or has "..". Links in that folder are followed: they are its owner's.
void check_location(const std::string& location);

}  // namespace cohort::runtime::onnx::detail
