// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's tensors: element types, shapes, and the layout of a row's tensors in memory.
#pragma once

#include <cohort/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::runtime {

/// Type of an element. Matrix products support the first three.
enum class data_type : std::uint8_t {
  f32,
  f16,
  bf16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,  ///< One byte, 0 or 1.
  bytes,    ///< A string: any bytes, each element of its own length (`take_string`).
};
/// Number of types with elements of fixed length: all but `bytes`, which is the last.
inline constexpr std::size_t data_types = 13;
/// Whether all elements of a type have one length, `bytes_of`: not strings.
[[nodiscard]] constexpr bool has_fixed_size(data_type t) noexcept { return t != data_type::bytes; }

namespace detail {
struct data_type_row {
  std::string_view name;
  std::size_t bytes;
};
inline constexpr std::array<data_type_row, data_types + 1> data_type_rows{{{"FP32", 4},
                                                                           {"FP16", 2},
                                                                           {"BF16", 2},
                                                                           {"FP64", 8},
                                                                           {"INT8", 1},
                                                                           {"INT16", 2},
                                                                           {"INT32", 4},
                                                                           {"INT64", 8},
                                                                           {"UINT8", 1},
                                                                           {"UINT16", 2},
                                                                           {"UINT32", 4},
                                                                           {"UINT64", 8},
                                                                           {"BOOL", 1},
                                                                           {"BYTES", 4}}};
}  // namespace detail

/// The name in the Open Inference Protocol: "FP32", "INT64", "BOOL", ...
[[nodiscard]] constexpr std::string_view name_of(data_type t) noexcept {
  return detail::data_type_rows[static_cast<std::size_t>(t)].name;
}
/// Bytes of an element. For `data_type::bytes` the minimum, 4, the size of an empty string. Never
/// 0.
[[nodiscard]] constexpr std::size_t bytes_of(data_type t) noexcept {
  return detail::data_type_rows[static_cast<std::size_t>(t)].bytes;
}
/// The type of a name, as `name_of` writes it.
[[nodiscard]] constexpr std::optional<data_type> data_type_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < detail::data_type_rows.size(); ++i) {
    if (detail::data_type_rows[i].name == name) return static_cast<data_type>(i);
  }
  return std::nullopt;
}

/// The name in Triton's configurations: "TYPE_FP32", ...; "TYPE_STRING" for `data_type::bytes`.
[[nodiscard]] inline std::string config_name_of(data_type t) {
  return t == data_type::bytes ? "TYPE_STRING" : "TYPE_" + std::string{name_of(t)};
}

/// Bytes of the length in front of each string.
inline constexpr std::size_t string_length_bytes = 4;
/// Takes the first string off a tensor of `data_type::bytes`. Such a tensor has its strings one
/// behind the other, in row-major order: the length of each (4 bytes, little-endian, unsigned),
/// then that many bytes of any value. Zeros are empty strings. O(1).
/// @returns Nothing, and takes nothing, if `tensor` ends before the string does.
[[nodiscard]] inline std::optional<std::string_view> take_string(
    std::span<const std::byte>& tensor) noexcept {
  if (tensor.size() < string_length_bytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = string_length_bytes; i-- > 0;) {
    length = length << 8U | std::to_integer<std::size_t>(tensor[i]);
  }
  if (length > tensor.size() - string_length_bytes) return std::nullopt;
  const std::string_view text{reinterpret_cast<const char*>(tensor.data()) + string_length_bytes,
                              length};
  tensor = tensor.subspan(string_length_bytes + length);
  return text;
}
/// Writes the length that goes in front of a string. @returns Where the string goes.
inline std::byte* put_string_length(std::byte* to, std::uint32_t length) noexcept {
  for (std::size_t i = 0; i < string_length_bytes; ++i, length >>= 8U) {
    *to++ = static_cast<std::byte>(length & 0xFFU);
  }
  return to;
}

/// Values that an integer input may have, both included.
struct value_range {
  std::int64_t least = 0;
  std::int64_t most = 0;

  friend bool operator==(const value_range&, const value_range&) = default;
};

/// A dimension that is as long as the request's input, up to `model_interface::max_size`.
inline constexpr std::int64_t size_dimension = -1;

/// A tensor of a model's interface: one request's part, without the batch dimension.
struct tensor_info {
  std::string name;
  data_type type = data_type::f32;
  std::vector<std::int64_t> shape;     ///< Each at least 1, or `size_dimension`.
  std::optional<value_range> range{};  ///< None: all values of the type.

  /// Whether a dimension is as long as the request's input.
  [[nodiscard]] bool has_size() const noexcept {
    return std::ranges::find(shape, size_dimension) != shape.end();
  }
  /// Elements of one row, of a request of this size.
  [[nodiscard]] std::size_t count(std::uint32_t size = 1) const noexcept {
    std::size_t n = 1;
    for (const std::int64_t d : shape)
      n *= d == size_dimension ? size : static_cast<std::size_t>(d);
    return n;
  }
  /// Bytes of one row, of a request of this size; for strings the minimum, that of empty ones.
  [[nodiscard]] std::size_t bytes(std::uint32_t size = 1) const noexcept {
    return count(size) * bytes_of(type);
  }

  friend bool operator==(const tensor_info&, const tensor_info&) = default;
};

/// A model as a client sees it.
struct model_interface {
  std::string name;
  std::vector<tensor_info> inputs;   ///< At least one.
  std::vector<tensor_info> outputs;  ///< Empty for a model that only emulates time.
  std::uint32_t max_size = 1;        ///< Largest size of a request; 1 where no tensor has one.

  [[nodiscard]] bool has_sizes() const noexcept {
    return std::ranges::any_of(inputs, [](const tensor_info& t) { return t.has_size(); });
  }
};

/// Where the tensors of a row lie in its memory: one behind the other, each as long as the largest
/// size needs and at a multiple of 8 bytes, so that any element is aligned in an aligned row. A row
/// with one tensor has no padding, so consecutive rows form a dense tensor.
class row_layout {
 public:
  row_layout() = default;
  /// @throws config_error If a dimension is neither positive nor `size_dimension`, or the row
  /// would have 2^40 bytes or more; names the tensor.
  row_layout(std::span<const tensor_info> tensors, std::uint32_t max_size) {
    constexpr std::size_t most = std::size_t{1} << 40U;
    for (const tensor_info& t : tensors) {
      std::size_t bytes = bytes_of(t.type);
      for (const std::int64_t d : t.shape) {
        if (d != size_dimension && d < 1) {
          throw config_error{"tensor '" + t.name + "': dimension: got " + std::to_string(d) +
                             ", expected at least 1"};
        }
        const std::size_t n = d == size_dimension ? max_size : static_cast<std::size_t>(d);
        if (n > most / bytes) too_large(t);
        bytes *= n;
      }
      offsets_.push_back(bytes_);
      bytes_ += tensors.size() == 1 ? bytes : (bytes + 7) / 8 * 8;
      if (bytes_ >= most) too_large(t);
    }
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }  ///< Of a row.
  [[nodiscard]] std::size_t offset(std::size_t tensor) const noexcept { return offsets_[tensor]; }
  [[nodiscard]] std::size_t tensors() const noexcept { return offsets_.size(); }

 private:
  [[noreturn]] static void too_large(const tensor_info& t) {
    throw config_error{"tensor '" + t.name +
                       "': a row of it is too large: expected less than 1 TiB"};
  }

  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::runtime
