// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tensors of a safetensors file, converted to f32 where they lie. The header is untrusted: every
/// number in it is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::llama {

/// `other`: one that safetensors has and `to_f32` does not convert.
enum class tensor_type : std::uint8_t { f32, f16, bf16, other };

/// A tensor in the file's bytes.
struct tensor_view {
  tensor_type type = tensor_type::f32;
  std::string dtype;  ///< As the file has it.
  std::vector<std::size_t> shape;
  std::span<const std::byte> bytes;

  [[nodiscard]] std::size_t count() const noexcept;
};

/// The tensors by name. Refers to `bytes`. As the format demands, each has a dtype of the format
/// and takes the bytes of its shape, and together they take every byte behind the header once.
/// @throws config_error Naming `origin`, the tensor and what is wrong, on one line.
[[nodiscard]] std::map<std::string, tensor_view> read_safetensors(std::span<const std::byte> bytes,
                                                                  const std::string& origin);

/// A name out of a file, for an error of one line.
[[nodiscard]] std::string shown(std::string_view name);

/// Converts to f32. @param t Not of type `other`.  @param to Of `t.count()` values.
/// @returns Whether all are finite.
bool to_f32(const tensor_view& t, float* to) noexcept;

/// A file in memory, read-only. Movable.
class mapped_file {
 public:
  /// @throws config_error If it cannot be read or is not a regular file.
  explicit mapped_file(const std::string& path);
  ~mapped_file();
  mapped_file(mapped_file&& other) noexcept;
  mapped_file& operator=(mapped_file&& other) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cohort::llama
