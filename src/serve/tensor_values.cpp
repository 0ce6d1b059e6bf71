// SPDX-License-Identifier: Apache-2.0
#include "tensor_values.hpp"

#include <fmt/compile.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

namespace cohort::serve {
namespace {

using json::dom::array;
using json::dom::element;
using runtime::data_type;

constexpr int max_nesting = 16;

/// Calls `f` with a value of the type; only for types that JSON can express, except strings.
template <class F>
decltype(auto) with_type(data_type t, F f) {
  switch (t) {
    case data_type::f64:
      return f(double{});
    case data_type::i8:
      return f(std::int8_t{});
    case data_type::i16:
      return f(std::int16_t{});
    case data_type::i32:
      return f(std::int32_t{});
    case data_type::i64:
      return f(std::int64_t{});
    case data_type::u8:
      return f(std::uint8_t{});
    case data_type::u16:
      return f(std::uint16_t{});
    case data_type::u32:
      return f(std::uint32_t{});
    case data_type::u64:
      return f(std::uint64_t{});
    case data_type::boolean:
      return f(bool{});
    case data_type::f32:
    case data_type::f16:
    case data_type::bf16:
    case data_type::bytes:
      break;
  }
  return f(float{});
}

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class T>
class value_reader {
 public:
  value_reader(std::size_t most, std::byte* to, const json::place& at)
      : most_{most}, to_{to}, at_{at} {}

  void read(const array& a, int depth) {
    if (depth > max_nesting) json::reject(fmt::format("{} is nested too deeply", at_.of("data")));
    for (const element e : a) {
      if (is_value(e)) {
        if (count_ < most_) std::memcpy(to_ + count_ * sizeof(T), &value_, sizeof(T));
        ++count_;
      } else if (array inner; e.get(inner) == simdjson::SUCCESS) {
        read(inner, depth + 1);
      } else if (count_++ < most_) {  // Beyond that, their number is the error.
        refuse(e);
      }
    }
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  bool is_value(const element& e) noexcept {
    if constexpr (std::same_as<T, bool> || std::same_as<T, double>) {
      return e.get(value_) == simdjson::SUCCESS;  // A double in JSON is finite.
    } else if constexpr (std::same_as<T, float>) {
      double v = 0;
      if (e.get(v) != simdjson::SUCCESS) return false;
      value_ = static_cast<float>(v);
      return std::isfinite(value_);
    } else {
      std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t> v = 0;
      if (e.get(v) != simdjson::SUCCESS || !std::in_range<T>(v)) return false;
      value_ = static_cast<T>(v);
      return true;
    }
  }
  [[noreturn]] void refuse(const element& e) const {
    const std::string value = fmt::format("{}[{}]", at_.of("data"), count_ - 1);
    if constexpr (std::same_as<T, bool>) {
      json::reject(fmt::format("{} must be true or false, not {}", value, json::kind_of(e)));
    } else if constexpr (std::is_integral_v<T>) {
      json::reject(fmt::format("{} must be an integer from {} to {}", value,
                               std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    } else if (e.is_number()) {
      json::reject(fmt::format("{} is out of range for FP{}", value, 8 * sizeof(T)));
    } else {
      json::reject(fmt::format("{} must be a number, not {}", value, json::kind_of(e)));
    }
  }

  std::size_t most_;
  std::byte* to_;
  const json::place& at_;
  std::size_t count_ = 0;
  T value_{};
};

/// Calls `f` with each string, in order. @returns Their number.
template <class F>
std::size_t each_string(const array& a, const json::place& at, F f, std::size_t count = 0,
                        int depth = 1) {
  if (depth > max_nesting) json::reject(fmt::format("{} is nested too deeply", at.of("data")));
  for (const element e : a) {
    std::string_view text;
    if (e.get(text) == simdjson::SUCCESS) {
      f(text);
      ++count;
    } else if (array inner; e.get(inner) == simdjson::SUCCESS) {
      count = each_string(inner, at, f, count, depth + 1);
    } else {
      json::reject(
          fmt::format("{}[{}] must be a string, not {}", at.of("data"), count, json::kind_of(e)));
    }
  }
  return count;
}

/// @returns The first value outside a range, if there is one.
template <class T>
std::optional<std::size_t> outside(std::span<const std::byte> values, runtime::value_range r) {
  // First all of them, without a branch: usually there is none.
  bool is_outside = false;
  const auto bad = [&](std::size_t i) {
    const T v = load<T>(values.data() + i * sizeof(T));
    return std::cmp_less(v, r.least) || std::cmp_greater(v, r.most);
  };
  const std::size_t n = values.size() / sizeof(T);
  for (std::size_t i = 0; i < n; ++i) is_outside |= bad(i);
  if (!is_outside) return std::nullopt;
  std::size_t first = 0;
  while (!bad(first)) ++first;
  return first;
}

}  // namespace

std::size_t read_values(const array& from, data_type type, std::size_t most, std::byte* to,
                        const json::place& at) {
  return with_type(type, [&]<class T>(T) {
    value_reader<T> reader{most, to, at};
    reader.read(from, 0);
    return reader.count();
  });
}

std::size_t bytes_of_strings(const array& from, const json::place& at) {
  std::size_t bytes = 0;
  each_string(from, at,
              [&](std::string_view text) { bytes += runtime::string_length_bytes + text.size(); });
  return bytes;
}

std::size_t read_strings(const array& from, std::byte* to, const json::place& at) {
  return each_string(from, at, [&](std::string_view text) {
    to = runtime::put_string_length(to, static_cast<std::uint32_t>(text.size()));
    to = std::ranges::copy(std::as_bytes(std::span{text}), to).out;
  });
}

void check_strings(std::span<const std::byte> data, std::size_t count, const std::string& name,
                   const json::place& at) {
  for (std::size_t i = 0; i < count; ++i) {
    if (runtime::take_string(data)) continue;
    const std::string what = fmt::format("{}: string {} of '{}'", at.of(""), i, name);
    const std::size_t left = data.size();
    if (left < runtime::string_length_bytes) {
      json::reject(
          fmt::format("{} is missing: {} bytes of binary data are left, its shape says {} "
                      "strings",
                      what, left, count));
    }
    json::reject(fmt::format("{} is longer than the {} bytes of binary data that are left", what,
                             left - runtime::string_length_bytes));
  }
  if (data.empty()) return;
  json::reject(
      fmt::format("{}: {} bytes of binary data are left over behind the {} strings of '{}'",
                  at.of(""), data.size(), count, name));
}

void check_values(const runtime::tensor_info& tensor, std::span<const std::byte> values,
                  const json::place& at) {
  with_type(tensor.type, [&]<class T>(T) {
    runtime::value_range range{0, 1};
    if constexpr (std::is_floating_point_v<T>) return;
    if constexpr (!std::same_as<T, bool>) {
      if (!tensor.range) return;
      range = *tensor.range;
    }
    using stored = std::conditional_t<std::same_as<T, bool>, std::uint8_t, T>;
    if constexpr (std::is_integral_v<stored>) {
      const std::optional<std::size_t> bad = outside<stored>(values, range);
      if (!bad) return;
      json::reject(fmt::format("{}[{}] is {}, expected {} to {} of input '{}'", at.of("data"), *bad,
                               load<stored>(values.data() + *bad * sizeof(T)), range.least,
                               range.most, tensor.name));
    }
  });
}

std::optional<std::size_t> write_values(fmt::memory_buffer& out, data_type type,
                                        std::span<const std::byte> values) {
  return with_type(type, [&]<class T>(T) -> std::optional<std::size_t> {
    const auto to = std::back_inserter(out);
    for (std::size_t i = 0; i * sizeof(T) < values.size(); ++i) {
      if (i > 0) out.push_back(',');
      if constexpr (std::same_as<T, bool>) {
        fmt::format_to(to, FMT_COMPILE("{}"), values[i] != std::byte{0});
      } else {
        const T v = load<T>(values.data() + i * sizeof(T));
        if constexpr (std::is_floating_point_v<T>) {
          if (!std::isfinite(v)) return i;
        }
        fmt::format_to(to, FMT_COMPILE("{}"), v);
      }
    }
    return std::nullopt;
  });
}

std::optional<std::size_t> find_not_finite(data_type type, std::span<const std::byte> values) {
  return with_type(type, [&]<class T>(T) -> std::optional<std::size_t> {
    if constexpr (std::is_floating_point_v<T>) {
      const std::size_t n = values.size() / sizeof(T);
      const auto is_finite = [&](std::size_t i) {
        return std::isfinite(load<T>(values.data() + i * sizeof(T)));
      };
      // First all of them, without a branch: usually there is none.
      bool all = true;
      for (std::size_t i = 0; i < n; ++i) all &= is_finite(i);
      if (all) return std::nullopt;
      std::size_t first = 0;
      while (is_finite(first)) ++first;
      return first;
    }
    return std::nullopt;
  });
}

std::vector<std::string> largest_values(data_type type, std::span<const std::byte> values,
                                        std::size_t most, std::span<const std::string> labels) {
  return with_type(type, [&]<class T>(T) {
    const auto at = [&](std::size_t i) { return load<T>(values.data() + i * sizeof(T)); };
    const auto is_before = [&](std::size_t a, std::size_t b) {
      const T x = at(a);
      const T y = at(b);
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
        if (std::isnan(x)) return a < b;
      }
      return x != y ? x > y : a < b;
    };
    std::vector<std::size_t> places;  // A heap with the last of those kept at its front.
    for (std::size_t i = 0; i < values.size() / sizeof(T) && most > 0; ++i) {
      if (places.size() == most) {
        if (!is_before(i, places.front())) continue;
        std::ranges::pop_heap(places, is_before);
        places.pop_back();
      }
      places.push_back(i);
      std::ranges::push_heap(places, is_before);
    }
    std::ranges::sort_heap(places, is_before);
    std::vector<std::string> all;
    for (const std::size_t i : places) {
      if constexpr (std::is_floating_point_v<T>) {
        all.push_back(fmt::format("{:f}:{}", at(i), i));
      } else {
        all.push_back(fmt::format("{}:{}", +at(i), i));
      }
      if (i < labels.size()) all.back() += ':' + labels[i];
    }
    return all;
  });
}

std::vector<float> to_floats(data_type type, std::span<const std::byte> values) {
  std::vector<float> out;
  if (!is_json_type(type) || !has_fixed_size(type)) return out;
  with_type(type, [&]<class T>(T) {
    for (std::size_t i = 0; i + sizeof(T) <= values.size(); i += sizeof(T)) {
      if constexpr (std::same_as<T, bool>) {
        out.push_back(values[i] != std::byte{0} ? 1.0F : 0.0F);
      } else {
        out.push_back(static_cast<float>(load<T>(values.data() + i)));
      }
    }
  });
  return out;
}

}  // namespace cohort::serve
