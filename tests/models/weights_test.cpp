// SPDX-License-Identifier: Apache-2.0
#include <models/weights.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace cohort::models::weights_test {
namespace {

const std::vector<tensor_spec> specs{{"a", {2, 3}, 1.0F}, {"b", {2}, 0.0F, 0.5F}};

std::vector<std::byte> file(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> out(8 + header.size() + data_bytes);
  const std::uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}
std::string complaint(const std::vector<std::byte>& bytes) {
  try {
    (void)parse_safetensors(specs, bytes, "f");
  } catch (const config_error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("what is written is read back") {
  const weight_map w = generate_weights(specs, 3);
  CHECK(w.at("b") == std::vector<float>{0.5F, 0.5F});
  CHECK(parse_safetensors(specs, write_safetensors(specs, w), "f") == w);
}
TEST_CASE("generated parameters have their mean and deviation") {
  const std::vector<tensor_spec> one{{"x", {20000}, 2.0F, 1.0F}};
  const std::vector<float> x = generate_weights(one, 1).at("x");
  double mean = 0;
  double square = 0;
  for (const float v : x) {
    mean += static_cast<double>(v) / 20000;
    square += static_cast<double>(v) * static_cast<double>(v) / 20000;
  }
  CHECK(mean == doctest::Approx(1).epsilon(0.05));
  CHECK(std::sqrt(square - mean * mean) == doctest::Approx(2).epsilon(0.05));
}
TEST_CASE("each mistake in a file is named") {
  CHECK(complaint({}) == "f: not a safetensors file: under 8 bytes");
  CHECK(complaint(file("{", 0)) == "f: the header is not a JSON object");
  CHECK(complaint(file("{}", 0)) == "f: tensor a is missing");
  CHECK(complaint(file(R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,24]}})", 24)) ==
        "f: tensor a: dtype must be F32");
  CHECK(complaint(file(R"({"a":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}})", 24)) ==
        "f: tensor a: shape is [3,2], expected [2,3]");
  CHECK(complaint(file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,-1]}})", 24)) ==
        "f: tensor a: data_offsets must be two integers");
  CHECK(complaint(file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 20)) ==
        "f: tensor a: data_offsets [0,24] do not hold 6 values");
  std::vector<std::byte> huge(16);
  std::memset(huge.data(), 0xFF, 8);
  CHECK(complaint(huge).starts_with("f: not a safetensors file: header of"));
}
TEST_CASE("values that are not finite are refused") {
  weight_map w = generate_weights(specs, 3);
  w.at("a")[2] = NAN;
  CHECK(complaint(write_safetensors(specs, w)) == "f: tensor a: values must be finite");
}
TEST_CASE("a file that is not there is named") {
  CHECK_THROWS_WITH_AS((void)load_weights(specs, "/nowhere"), "/nowhere: cannot be read",
                       config_error);
}
}  // namespace
}  // namespace cohort::models::weights_test
