// SPDX-License-Identifier: Apache-2.0
#include <commands/onnx_traffic.hpp>

#include <doctest/doctest.h>

#include <cohort/runtime/tensor.hpp>

#include <map>
#include <string>

#include <support/onnx_models.hpp>

namespace cohort::commands::onnx_traffic_test {
namespace {

using runtime::data_type;
using runtime::tensor_info;

TEST_CASE("each node counts its constants once a batch, and its rows as often as there are rows") {
  const formats::onnx_dimension batch{.value = -1, .name = "batch"};
  test::onnx_builder b{"two"};
  b.input("x", data_type::f32, {batch, {.value = 4}});
  b.node("MatMul", {"x", b.weights({4, 8}, 1)}, {}, "h");  // 16 + 128 + 32 bytes.
  b.node("Reshape", {"h", b.integers({2}, {-1, 8})}, {}, "same");
  b.node("Relu", {"same"}, {}, "y");  // 32 + 32.
  b.output("y", data_type::f32, {batch, {.value = 8}});
  const std::map<std::string, tensor_info> rows{
      {"x", {.name = "x", .type = data_type::f32, .shape = {4}}},
      {"h", {.name = "h", .type = data_type::f32, .shape = {8}}},
      {"same", {.name = "same", .type = data_type::f32, .shape = {8}}},
      {"y", {.name = "y", .type = data_type::f32, .shape = {8}}}};
  onnx_traffic t{b.done(), rows, 1};
  CHECK(t.of_batch(1, 1000).bytes == 128 + 48 + 64);
  CHECK(t.of_batch(10, 1000).bytes == 128 + 480 + 640);
  // Of 10 rows the product touches 608 bytes and the other 640.
  CHECK(t.of_batch(10, 620).large_bytes == 640);
  CHECK(t.of_batch(10, 600).large_bytes == 1248);
  CHECK(t.of_batch(10, 700).large_bytes == 0);
  const onnx_traffic same = t;
  t.add(same);
  CHECK(t.of_batch(1, 1000).bytes == 2 * 240);
}

TEST_CASE("lengths count as long as they are, and what is not known as nothing") {
  const formats::onnx_dimension batch{.value = -1, .name = "batch"};
  test::onnx_builder b{"long"};
  b.input("x", data_type::i64, {batch, {.value = -1, .name = "length"}});
  b.node("Abs", {"x"}, {}, "y");
  b.node("Abs", {"unknown"}, {}, "strange");
  b.output("y", data_type::i64, {batch, {.value = -1, .name = "length"}});
  const std::map<std::string, tensor_info> rows{
      {"x", {.name = "x", .type = data_type::i64, .shape = {runtime::size_dimension}}},
      {"y", {.name = "y", .type = data_type::i64, .shape = {runtime::size_dimension}}}};
  CHECK(onnx_traffic{b.done(), rows, 100}.of_batch(2, 1U << 20U).bytes == 2 * 2 * 800);
}

}  // namespace
}  // namespace cohort::commands::onnx_traffic_test
