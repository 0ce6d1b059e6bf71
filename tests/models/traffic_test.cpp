// SPDX-License-Identifier: Apache-2.0
#include <models/traffic.hpp>

#include <doctest/doctest.h>

#include <limits>

namespace cohort::models::traffic_test {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

TEST_CASE("a dense layer moves and computes what its shape says") {
  network_builder b{"n", {1, 1, 100}};
  const network n = b.finish(b.dense(0, 10, activation::relu));
  const traffic t = count_traffic(define(n), 4, no_limit);
  // Product 4 × 10 × 100, then 40 biases.
  CHECK(t.operations == 2 * 4 * 10 * 100 + 40);
  // In: a copy of 4 × 100 there and back; product: A, B, C; bias: 40 read and written; out: a copy.
  CHECK(t.bytes == 4 * (2 * 400 + (400 + 1000 + 40) + 2 * 40 + 2 * 40));
  CHECK(t.large_bytes == 0);
  // Only the product touches more than 5000 bytes.
  CHECK(count_traffic(define(n), 4, 5000).large_bytes == 4 * (400 + 1000 + 40));
}
TEST_CASE("operations of the published networks are those of the literature") {
  // Billions of multiply-adds for one image, as usually quoted.
  const auto giga = [](const network& n) {
    return count_traffic(define(n), 1, no_limit).operations / 2e9;
  };
  CHECK(giga(resnet152()) == doctest::Approx(11.5).epsilon(0.03));
  CHECK(giga(vgg19()) == doctest::Approx(19.6).epsilon(0.03));
}
TEST_CASE("traffic grows with the batch, parameters do not") {
  const definition d = define(bert_base());
  const traffic one = count_traffic(d, 1, no_limit);
  const traffic eight = count_traffic(d, 8, no_limit);
  CHECK(eight.operations == doctest::Approx(8 * one.operations));
  CHECK(eight.bytes < 8 * one.bytes);
}
}  // namespace
}  // namespace cohort::models::traffic_test
