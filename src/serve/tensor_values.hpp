// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elements of tensors: read from JSON, written as JSON, and checked.
#pragma once

#include <cohort/runtime/tensor.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json_fields.hpp"

namespace cohort::serve {

/// Whether JSON can express its elements in this protocol: all but FP16 and BF16. Strings are
/// separate: types below are numbers and booleans.
[[nodiscard]] constexpr bool is_json_type(runtime::data_type t) noexcept {
  return t != runtime::data_type::f16 && t != runtime::data_type::bf16;
}

/// Reads the values of an array, flat or nested. @param at The tensor of this `data`.
/// @param to Memory for at most `most` values.  @returns Their number, stored or not.
/// @throws json::rejected For a value of another type; names the value.
std::size_t read_values(const json::dom::array& from, runtime::data_type type, std::size_t most,
                        std::byte* to, const json::place& at);

/// Size of the strings of an array, flat or nested, as a tensor (`runtime::take_string`).
/// @throws json::rejected For a value that is no string; names the value.
std::size_t bytes_of_strings(const json::dom::array& from, const json::place& at);
/// Writes that tensor. @returns The number of strings. @throws json::rejected As above.
std::size_t read_strings(const json::dom::array& from, std::byte* to, const json::place& at);
/// Checks that binary data contains exactly `count` strings.
/// @throws json::rejected Names the tensor and the first incomplete string.
void check_strings(std::span<const std::byte> data, std::size_t count, const std::string& name,
                   const json::place& at);

/// Checks that all values are permitted: in the tensor's range, and 0 or 1 for booleans.
/// @throws json::rejected Names the first that is not. @param at As above.
void check_values(const runtime::tensor_info& tensor, std::span<const std::byte> values,
                  const json::place& at);

/// Appends values, separated by commas. @returns The first one that is not finite, which JSON
/// cannot express; or nothing.
std::optional<std::size_t> write_values(fmt::memory_buffer& out, runtime::data_type type,
                                        std::span<const std::byte> values);

/// The first value that is not finite, which JSON cannot express; or nothing.
std::optional<std::size_t> find_not_finite(runtime::data_type type,
                                           std::span<const std::byte> values);

/// The largest values, each as "VALUE:PLACE", or "VALUE:PLACE:LABEL" if its place has a label, as
/// Triton writes them: the largest first, among equals the first. Not for FP16 and BF16. O(n log
/// most).
std::vector<std::string> largest_values(runtime::data_type type, std::span<const std::byte> values,
                                        std::size_t most, std::span<const std::string> labels);

/// Values as floats; empty for FP16 and BF16.
std::vector<float> to_floats(runtime::data_type type, std::span<const std::byte> values);

}  // namespace cohort::serve
