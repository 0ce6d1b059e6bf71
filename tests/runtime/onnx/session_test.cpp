// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/session.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <vector>

#include "onnx_fixture.hpp"

namespace cohort::runtime::onnx {
namespace {

TEST_CASE("a session tells its model's tensors without the batch") {
  const auto s = load(test::mlp());
  CHECK(s->has_batch());
  CHECK_FALSE(s->pads());
  const model_interface& m = s->interface();
  CHECK(m.name == "mlp");
  CHECK(m.max_size == 1);
  CHECK(m.inputs == std::vector<tensor_info>{{.name = "x", .type = data_type::f32, .shape = {32}}});
  CHECK(m.outputs ==
        std::vector<tensor_info>{{.name = "y", .type = data_type::f32, .shape = {10}}});
}

TEST_CASE("a softmax of three rows sums to 1 in each") {
  const auto s = load(test::mlp());
  const auto y = values_of<float>(answers(*s, {bytes_of(std::vector<float>(3 * 32, 0.5F))}, 3)[0]);
  REQUIRE(y.size() == 30);
  for (std::size_t r = 0; r < 3; ++r) {
    float sum = 0;
    for (std::size_t i = 0; i < 10; ++i) sum += y[r * 10 + i];
    CHECK(sum == doctest::Approx(1));
  }
}

}  // namespace
}  // namespace cohort::runtime::onnx
