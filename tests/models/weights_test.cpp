// SPDX-License-Identifier: Apache-2.0
#include <models/weights.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <cmath>
#include <cstring>
#include <string>
#include <support/complaint.hpp>
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
test::gist complaint(const std::vector<std::byte>& bytes) {
  return test::gist_of<config_error>([&] { (void)parse_safetensors(specs, bytes, "f"); });
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
  CHECK(complaint({}) == "f: ... safetensors file: ... 8 bytes");
  CHECK(complaint(file("{", 0)) == "f: ... header ... JSON object");
  CHECK(complaint(file("{}", 0)) == "f: tensor a ... missing");
  CHECK(complaint(file(R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,24]}})", 24)) ==
        "f: tensor a: dtype ... F32");
  CHECK(complaint(file(R"({"a":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}})", 24)) ==
        "f: tensor a: shape ... [3,2] ... [2,3]");
  CHECK(complaint(file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,-1]}})", 24)) ==
        "f: tensor a: data_offsets ... two integers");
  CHECK(complaint(file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 20)) ==
        "f: tensor a: data_offsets [0,24] ... 6 values");
  std::vector<std::byte> huge(16);
  std::memset(huge.data(), 0xFF, 8);
  CHECK(complaint(huge) == "f: ... safetensors file: header ...");
}
TEST_CASE("values that are not finite are refused") {
  weight_map w = generate_weights(specs, 3);
  w.at("a")[2] = NAN;
  CHECK(complaint(write_safetensors(specs, w)) == "f: tensor a: values ... finite");
}
TEST_CASE("a file that is not there is named") {
  CHECK(test::gist_of<config_error>([] { (void)load_weights(specs, "/nowhere"); }) ==
        "/nowhere: cannot be read");
}
}  // namespace
}  // namespace cohort::models::weights_test
