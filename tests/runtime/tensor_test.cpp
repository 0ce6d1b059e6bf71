// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/tensor.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::runtime::tensor_test {
namespace {

TEST_CASE("each data type has the protocol's name, which leads back to it, and its bytes") {
  for (std::size_t i = 0; i < data_types; ++i) {
    const auto t = static_cast<data_type>(i);
    CAPTURE(name_of(t));
    CHECK(data_type_of(name_of(t)) == t);
  }
  CHECK(name_of(data_type::i64) == "INT64");
  CHECK(name_of(data_type::boolean) == "BOOL");
  CHECK(bytes_of(data_type::f16) == 2);
  CHECK(bytes_of(data_type::f64) == 8);
  CHECK(bytes_of(data_type::boolean) == 1);
  CHECK(name_of(data_type::bytes) == "BYTES");
  CHECK(data_type_of("BYTES") == data_type::bytes);
  CHECK(config_name_of(data_type::bytes) == "TYPE_STRING");
  CHECK(config_name_of(data_type::i64) == "TYPE_INT64");
  CHECK(has_fixed_size(data_type::boolean));
  CHECK_FALSE(has_fixed_size(data_type::bytes));
  CHECK_FALSE(data_type_of("fp32"));
}

TEST_CASE("strings lie one behind the other, each behind its length") {
  std::array<std::byte, 4> length{};
  CHECK(put_string_length(length.data(), 0x01020304) == length.data() + 4);
  CHECK(length == std::array{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}});
  const std::string_view text{"\2\0\0\0a\0\0\0\0\0\3\0\0\0ab", 16};
  auto rest = std::as_bytes(std::span{text});
  CHECK(take_string(rest) == std::string_view{"a\0", 2});
  CHECK(take_string(rest) == "");
  CHECK_FALSE(take_string(rest));  // It is one byte short.
  CHECK(rest.size() == 6);
  rest = rest.first(3);
  CHECK_FALSE(take_string(rest));
  const std::array<std::byte, 5> huge{std::byte{255}, std::byte{255}, std::byte{255},
                                      std::byte{255}};
  rest = huge;
  CHECK_FALSE(take_string(rest));
  CHECK(tensor_info{"x", data_type::bytes, {2, 3}}.bytes() == 24);  // Zeros: six empty ones.
}

TEST_CASE("a tensor with a size is as long as its request") {
  const tensor_info hidden{"hidden", data_type::f32, {size_dimension, 8}};
  CHECK(hidden.has_size());
  CHECK(hidden.count(3) == 24);
  CHECK(hidden.bytes(3) == 96);
  const tensor_info scalar{"x", data_type::i16, {}};
  CHECK_FALSE(scalar.has_size());
  CHECK(scalar.bytes(7) == 2);
}

TEST_CASE("a row of one tensor is that tensor, without a byte more") {
  const std::array one{tensor_info{"x", data_type::u8, {3}}};
  const row_layout row{one, 1};
  CHECK(row.bytes() == 3);
  CHECK(row.offset(0) == 0);
}

TEST_CASE("tensors of a row begin at multiples of 8 bytes and have room for the largest size") {
  const std::array tensors{tensor_info{"flags", data_type::u8, {3}},
                           tensor_info{"ids", data_type::i64, {size_dimension}},
                           tensor_info{"x", data_type::f32, {1}}};
  const row_layout row{tensors, 5};
  CHECK(row.tensors() == 3);
  CHECK(row.offset(0) == 0);
  CHECK(row.offset(1) == 8);
  CHECK(row.offset(2) == 48);
  CHECK(row.bytes() == 56);
}

TEST_CASE("shapes that are empty, negative or overflow are refused with the tensor's name") {
  const auto refusal = [](std::vector<std::int64_t> shape) {
    const std::array t{tensor_info{"x", data_type::f64, std::move(shape)}};
    try {
      const row_layout row{t, 1U << 31U};
      return test::gist{"accepted"};
    } catch (const config_error& e) {
      return test::gist(e.what());
    }
  };
  CHECK(refusal({0}) == "tensor 'x': dimension: bad value");
  CHECK(refusal({2, -3}) == "tensor 'x': dimension: bad value");
  const std::string too_large = "tensor 'x': ... row ... too large: ... 1 TiB";
  CHECK(refusal({INT64_MAX, INT64_MAX}) == too_large);
  CHECK(refusal({size_dimension, size_dimension}) == too_large);
  CHECK(refusal({(std::int64_t{1} << 37U) - 1}) == "accepted");
  CHECK(refusal({std::int64_t{1} << 37U}) == too_large);
}

}  // namespace
}  // namespace cohort::runtime::tensor_test
