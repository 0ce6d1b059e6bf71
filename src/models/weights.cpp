// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numbers>

namespace cohort::models {
namespace {

constexpr std::size_t max_header = std::size_t{16} << 20U;

/// SplitMix64: small, and the same everywhere.
struct generator {
  std::uint64_t state;
  std::uint64_t next() noexcept {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  /// In (0, 1).
  double unit() noexcept { return (static_cast<double>(next() >> 11U) + 0.5) * 0x1.0p-53; }
  double normal() noexcept {
    const double radius = std::sqrt(-2 * std::log(unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }
};

std::uint64_t hash(const std::string& name) noexcept {
  std::uint64_t h = 0xCBF29CE484222325ULL;  // FNV-1a.
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return h;
}

[[noreturn]] void fail(const std::string& origin, const std::string& what) {
  throw config_error{fmt::format("{}: {}", origin, what)};
}

}  // namespace

weight_map generate_weights(std::span<const tensor_spec> specs, std::uint64_t seed) {
  weight_map weights;
  for (const tensor_spec& t : specs) {
    generator g{seed ^ hash(t.name)};
    std::vector<float> values(t.count(), t.offset);
    if (t.scale > 0) {
      for (float& v : values) v = static_cast<float>(t.offset + t.scale * g.normal());
    }
    weights.emplace(t.name, std::move(values));
  }
  return weights;
}

weight_map load_weights(std::span<const tensor_spec> specs, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    fail(path, "is not a file");
  std::ifstream file{path, std::ios::binary};
  if (!file) fail(path, "cannot be read");
  const std::vector<char> content{std::istreambuf_iterator<char>{file}, {}};
  return parse_safetensors(specs, std::as_bytes(std::span{content}), path);
}

weight_map parse_safetensors(std::span<const tensor_spec> specs, std::span<const std::byte> bytes,
                             const std::string& origin) {
  static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");
  std::uint64_t header_size = 0;
  if (bytes.size() < sizeof(header_size)) fail(origin, "not a safetensors file: under 8 bytes");
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(header_size));
  if (header_size > rest.size() || header_size > max_header) {
    fail(origin, fmt::format("not a safetensors file: header of {} bytes in {} bytes", header_size,
                             bytes.size()));
  }
  const auto* text = reinterpret_cast<const char*>(rest.data());
  const nlohmann::json header =
      nlohmann::json::parse(text, text + header_size, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) fail(origin, "the header is not a JSON object");
  const std::span<const std::byte> data = rest.subspan(header_size);

  weight_map weights;
  for (const tensor_spec& t : specs) {
    const auto entry = header.find(t.name);
    if (entry == header.end()) fail(origin, fmt::format("tensor {} is missing", t.name));
    if (!entry->is_object() || entry->value("dtype", nlohmann::json{}) != "F32") {
      fail(origin, fmt::format("tensor {}: dtype must be F32", t.name));
    }
    if (entry->value("shape", nlohmann::json{}) != nlohmann::json(t.shape)) {
      fail(origin,
           fmt::format("tensor {}: shape is {}, expected [{}]", t.name,
                       entry->value("shape", nlohmann::json{}).dump(), fmt::join(t.shape, ",")));
    }
    const nlohmann::json range = entry->value("data_offsets", nlohmann::json{});
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() ||
        !range[1].is_number_unsigned()) {
      fail(origin, fmt::format("tensor {}: data_offsets must be two integers", t.name));
    }
    const auto begin = range[0].get<std::uint64_t>();
    const auto end = range[1].get<std::uint64_t>();
    if (begin > end || end > data.size() || end - begin != t.count() * sizeof(float)) {
      fail(origin, fmt::format("tensor {}: data_offsets [{},{}] do not hold {} values", t.name,
                               begin, end, t.count()));
    }
    std::vector<float> values(t.count());
    if (!values.empty()) std::memcpy(values.data(), data.data() + begin, end - begin);
    for (const float v : values) {
      if (!std::isfinite(v)) fail(origin, fmt::format("tensor {}: values must be finite", t.name));
    }
    weights.emplace(t.name, std::move(values));
  }
  return weights;
}

std::vector<std::byte> write_safetensors(std::span<const tensor_spec> specs,
                                         const weight_map& weights) {
  nlohmann::json header = nlohmann::json::object();
  std::uint64_t at = 0;
  for (const tensor_spec& t : specs) {
    const std::uint64_t end = at + t.count() * sizeof(float);
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = text.size();
  std::vector<std::byte> out(sizeof(size) + text.size() + at);
  std::memcpy(out.data(), &size, sizeof(size));
  std::memcpy(out.data() + sizeof(size), text.data(), text.size());
  std::byte* to = out.data() + sizeof(size) + text.size();
  for (const tensor_spec& t : specs) {
    const std::vector<float>& values = weights.at(t.name);
    std::memcpy(to, values.data(), values.size() * sizeof(float));
    to += values.size() * sizeof(float);
  }
  return out;
}

}  // namespace cohort::models
