// SPDX-License-Identifier: Apache-2.0
#include <models/network.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstring>
#include <vector>

#include <models/definition.hpp>

namespace cohort::models::network_test {
namespace {

using list = std::vector<std::size_t>;

std::vector<double> run(const network& n, const weight_map& w, const std::vector<float>& input) {
  std::vector<std::byte> bytes(input.size() * sizeof(float));
  std::memcpy(bytes.data(), input.data(), bytes.size());
  return reference_of(n, w, bytes);
}

TEST_CASE("a boundary holds what later stages read") {
  network_builder b{"n", {4, 4, 2}};
  const std::size_t x = b.convolve(0, 3, 3, 1, 1, activation::relu);  // 1
  const std::size_t y = b.convolve(x, 3, 3, 1, 1, activation::none);  // 2
  b.cut();
  const std::size_t z = b.add(y, x, activation::relu);  // 3
  b.cut();
  const network n = b.finish(b.max_pool(z, 2, 2, 0));  // 4
  CHECK(n.stages == 3);
  CHECK(n.live_at(0) == list{0});
  CHECK(n.live_at(1) == list{1, 2});
  CHECK(n.live_at(2) == list{3});
  CHECK(n.live_at(3) == list{4});
  CHECK(n.floats_at(1) == 2 * 4 * 4 * 3);
  CHECK(n.floats_at(3) == 2 * 2 * 3);
}
TEST_CASE("convolution, pooling and the dense layer by hand") {
  network_builder b{"n", {2, 2, 1}};
  const std::size_t x = b.convolve(0, 1, 3, 1, 1, activation::none);
  const std::size_t p = b.max_pool(x, 2, 2, 0);
  const network n = b.finish(b.dense(p, 1, activation::none));
  // The kernel takes the pixel to the left; out = 3 · max + 1.
  const weight_map w{{"layer0.weight", {0, 0, 0, 1, 0, 0, 0, 0, 0}},
                     {"layer0.bias", {0.5F}},
                     {"layer2.weight", {3}},
                     {"layer2.bias", {1}}};
  // Rows 1 2 and 4 3 become 0.5 1.5 and 0.5 4.5.
  CHECK(run(n, w, {1, 2, 4, 3}) == std::vector<double>{3 * 4.5 + 1});
}
TEST_CASE("a transposed convolution by hand") {
  network_builder b{"n", {1, 2, 1}};
  const network n = b.finish(b.enlarge(0, 1, 2, 2, 0, activation::none));
  const weight_map w{{"layer0.weight", {1, 2, 3, 4}}, {"layer0.bias", {0}}};
  CHECK(run(n, w, {10, 100}) == std::vector<double>{10, 20, 100, 200, 30, 40, 300, 400});
}
TEST_CASE("padding of a pool is no value, not zero") {
  network_builder b{"n", {2, 2, 1}};
  const network n = b.finish(b.max_pool(0, 3, 2, 1));
  CHECK(run(n, {}, {-1, -2, -3, -4}) == std::vector<double>{-1});
}
TEST_CASE("channels are concatenated in order") {
  network_builder b{"n", {1, 2, 1}};
  const std::size_t x = b.max_pool(0, 1, 1, 0);
  const network n = b.finish(b.concatenate(0, x));
  CHECK(run(n, {}, {5, 7}) == std::vector<double>{5, 5, 7, 7});
}
TEST_CASE("shapes that do not fit are refused") {
  network_builder b{"n", {4, 4, 2}};
  const std::size_t small = b.max_pool(0, 2, 2, 0);
  CHECK_THROWS_AS((void)b.add(0, small, activation::none), config_error);
  CHECK_THROWS_AS((void)b.concatenate(0, small), config_error);
  CHECK_THROWS_AS((void)b.enlarge(0, 1, 5, 2, 0, activation::none), config_error);
}
TEST_CASE("the large networks have the published sizes") {
  // Parameters in millions, without batch normalisation; the papers' figures.
  const auto millions = [](const definition& d) {
    std::size_t n = 0;
    for (const tensor_spec& t : d.tensors) n += t.count();
    return static_cast<double>(n) / 1e6;
  };
  CHECK(millions(define(resnet152())) == doctest::Approx(60.2).epsilon(0.01));
  CHECK(millions(define(vgg19())) == doctest::Approx(143.7).epsilon(0.01));
  CHECK(millions(define(unet())) == doctest::Approx(31.0).epsilon(0.01));
  CHECK(millions(define(linknet())) == doctest::Approx(11.5).epsilon(0.02));
  CHECK(millions(define(bert_base())) == doctest::Approx(109.1).epsilon(0.01));
  CHECK(millions(define(bert_large())) == doctest::Approx(334.6).epsilon(0.01));
  CHECK(define(resnet152()).info.outputs.front().shape == std::vector<std::int64_t>{1000});
  CHECK(define(unet()).info.outputs.front().shape == std::vector<std::int64_t>{256, 256, 2});
  CHECK(define(linknet()).info.outputs.front().shape == std::vector<std::int64_t>{256, 256, 2});
}
}  // namespace
}  // namespace cohort::models::network_test
