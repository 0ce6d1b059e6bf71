// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elements of tensors: from JSON, to JSON, and whether they are allowed.
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

/// Whether JSON can say its elements in this protocol: all but FP16 and BF16. Strings are apart:
/// what is said of types below is of numbers and booleans.
[[nodiscard]] constexpr bool is_json_type(runtime::data_type t) noexcept {
  return t != runtime::data_type::f16 && t != runtime::data_type::bf16;
}

/// Reads the values of an array, flat or nested. @param at The tensor whose `data` it is.
/// @param to Memory for so many values at most.  @returns How many there are, stored or not.
/// @throws json::rejected For what is no value of the type; names the value.
std::size_t read_values(const json::dom::array& from, runtime::data_type type, std::size_t most,
                        std::byte* to, const json::place& at);

/// Bytes of the strings of an array, flat or nested, as a tensor (`runtime::take_string`).
/// @throws json::rejected For what is no string; names the value.
std::size_t bytes_of_strings(const json::dom::array& from, const json::place& at);
/// Writes that tensor. @returns How many strings there are. @throws json::rejected As above.
std::size_t read_strings(const json::dom::array& from, std::byte* to, const json::place& at);
/// Whether binary data are so many strings, no fewer and no more.
/// @throws json::rejected Names the tensor and the first string that is not whole.
void check_strings(std::span<const std::byte> data, std::size_t count, const std::string& name,
                   const json::place& at);

/// Whether all values are allowed: in the tensor's range, and 0 or 1 if they are booleans.
/// @throws json::rejected Names the first that is not. @param at As above.
void check_values(const runtime::tensor_info& tensor, std::span<const std::byte> values,
                  const json::place& at);

/// Appends values, with commas between them. @returns The first that JSON cannot say, which is not
/// finite; or nothing.
std::optional<std::size_t> write_values(fmt::memory_buffer& out, runtime::data_type type,
                                        std::span<const std::byte> values);

/// The first of values that is not finite, which JSON cannot say; or nothing.
std::optional<std::size_t> find_not_finite(runtime::data_type type,
                                           std::span<const std::byte> values);

/// The largest values, each as "VALUE:PLACE", or "VALUE:PLACE:LABEL" where its place has a label,
/// as Triton writes them: the largest first, of equal ones the first. Not of FP16 and BF16. O(n log
/// most).
std::vector<std::string> largest_values(runtime::data_type type, std::span<const std::byte> values,
                                        std::size_t most, std::span<const std::string> labels);

/// Values as floats; none of FP16 and BF16.
std::vector<float> to_floats(runtime::data_type type, std::span<const std::byte> values);

}  // namespace cohort::serve
