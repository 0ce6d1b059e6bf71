// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

namespace cohort::llama {
namespace {

constexpr std::size_t max_header = std::size_t{100} << 20U;

[[noreturn]] void fail(const std::string& origin, const std::string& what) {
  throw config_error{fmt::format("{}: {}", origin, what)};
}

struct known_dtype {
  std::string_view name;
  std::uint64_t bits;
  tensor_type type = tensor_type::other;
};
constexpr std::array dtypes{known_dtype{"F32", 32, tensor_type::f32},
                            known_dtype{"F16", 16, tensor_type::f16},
                            known_dtype{"BF16", 16, tensor_type::bf16},
                            known_dtype{"BOOL", 8},
                            known_dtype{"U8", 8},
                            known_dtype{"I8", 8},
                            known_dtype{"F8_E5M2", 8},
                            known_dtype{"F8_E4M3", 8},
                            known_dtype{"F8_E5M2FNUZ", 8},
                            known_dtype{"F8_E4M3FNUZ", 8},
                            known_dtype{"F8_E8M0", 8},
                            known_dtype{"F6_E2M3", 6},
                            known_dtype{"F6_E3M2", 6},
                            known_dtype{"F4", 4},
                            known_dtype{"U16", 16},
                            known_dtype{"I16", 16},
                            known_dtype{"U32", 32},
                            known_dtype{"I32", 32},
                            known_dtype{"U64", 64},
                            known_dtype{"I64", 64},
                            known_dtype{"F64", 64},
                            known_dtype{"C64", 64}};

/// Where a tensor lies in the data.
struct extent {
  std::uint64_t begin;
  std::uint64_t end;
  std::string name;
};

/// Every byte belongs to one tensor.
void check_cover(std::vector<extent> all, std::uint64_t bytes, const std::string& origin) {
  std::ranges::sort(all, {}, [](const extent& e) { return std::tie(e.begin, e.end, e.name); });
  std::uint64_t covered = 0;
  const extent* before = nullptr;
  for (const extent& e : all) {
    if (e.begin < covered) {
      fail(origin, fmt::format("tensor {}: data_offsets [{},{}] overlap those of tensor {}",
                               shown(e.name), e.begin, e.end, shown(before->name)));
    }
    if (e.begin > covered) {
      fail(origin, fmt::format("data bytes {} to {} belong to no tensor", covered, e.begin));
    }
    covered = e.end;
    before = &e;
  }
  if (covered != bytes) {
    fail(origin, fmt::format("data bytes {} to {} belong to no tensor", covered, bytes));
  }
}

float from_f16(std::uint16_t h) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16U;
  const std::uint32_t exponent = (h >> 10U) & 0x1FU;
  const std::uint32_t fraction = h & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

}  // namespace

std::string shown(std::string_view name) {
  std::string out{name.substr(0, 120)};
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return out;
}

std::size_t tensor_view::count() const noexcept {
  std::size_t n = 1;
  for (const std::size_t d : shape) n *= d;
  return n;
}

std::map<std::string, tensor_view> read_safetensors(std::span<const std::byte> bytes,
                                                    const std::string& origin) {
  static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");
  using nlohmann::json;
  std::uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) fail(origin, "not a safetensors file: under 8 bytes");
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const auto rest = bytes.subspan(sizeof header_size);
  if (header_size > rest.size() || header_size > max_header) {
    fail(origin, fmt::format("not a safetensors file: header of {} bytes in {} bytes", header_size,
                             bytes.size()));
  }
  const auto* text = reinterpret_cast<const char*>(rest.data());
  const json header = json::parse(text, text + header_size, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) fail(origin, "the header is not a JSON object");
  const auto data = rest.subspan(header_size);

  std::map<std::string, tensor_view> out;
  std::vector<extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto wrong = [&](std::string_view what) {
      fail(origin, fmt::format("tensor {}: {}", shown(name), what));
    };
    if (!entry.is_object()) wrong("is not an object");
    const json type = entry.value("dtype", json{});
    if (!type.is_string()) wrong("dtype must be a string");
    tensor_view t;
    t.dtype = type.get<std::string>();
    const auto* const known = std::ranges::find(dtypes, t.dtype, &known_dtype::name);
    if (known == dtypes.end()) {
      wrong(fmt::format("dtype {} is not one of safetensors", shown(t.dtype)));
    }
    t.type = known->type;
    const json shape = entry.value("shape", json{});
    if (!shape.is_array() || shape.size() > 8)
      wrong("shape must be an array of at most 8 integers");
    std::uint64_t bits = known->bits;
    for (const json& d : shape) {
      if (!d.is_number_unsigned()) wrong("shape must be integers of at least 0");
      const auto n = d.get<std::uint64_t>();
      if (n != 0 && bits > std::numeric_limits<std::uint64_t>::max() / n) wrong("is too large");
      bits *= n;
      t.shape.push_back(n);
    }
    if (bits % 8 != 0) wrong("does not fill its last byte");
    const std::uint64_t length = bits / 8;
    const json range = entry.value("data_offsets", json{});
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() ||
        !range[1].is_number_unsigned()) {
      wrong("data_offsets must be two integers");
    }
    const auto begin = range[0].get<std::uint64_t>();
    const auto end = range[1].get<std::uint64_t>();
    if (begin > end || end > data.size() || end - begin != length) {
      wrong(fmt::format("data_offsets [{},{}] do not hold {} bytes of {}", begin, end, length,
                        data.size()));
    }
    t.bytes = data.subspan(begin, length);
    extents.push_back({begin, end, name});
    out.emplace(name, std::move(t));
  }
  check_cover(std::move(extents), data.size(), origin);
  return out;
}

bool to_f32(const tensor_view& t, float* to) noexcept {
  COHORT_ASSERT(t.type != tensor_type::other);
  const std::size_t n = t.count();
  bool finite = true;
  for (std::size_t i = 0; i < n; ++i) {
    if (t.type == tensor_type::f32) {
      std::memcpy(to + i, t.bytes.data() + 4 * i, 4);
    } else {
      std::uint16_t half = 0;
      std::memcpy(&half, t.bytes.data() + 2 * i, 2);
      to[i] = t.type == tensor_type::f16
                  ? from_f16(half)
                  : std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16U);
    }
    finite = finite && std::isfinite(to[i]);
  }
  return finite;
}

mapped_file::mapped_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, "cannot be read");
  struct stat status{};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    fail(path, "is not a file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED) {
      ::close(file);
      fail(path, "cannot be mapped");
    }
    data_ = static_cast<const std::byte*>(at);
  }
  ::close(file);
}

mapped_file::~mapped_file() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

mapped_file::mapped_file(mapped_file&& other) noexcept
    : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}

mapped_file& mapped_file::operator=(mapped_file&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace cohort::llama
