// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/staged.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <support/complaint.hpp>
#include <vector>

#include "onnx_fixture.hpp"

namespace cohort::runtime::onnx::staged_test {
namespace {

using host_stages = onnx_stages<host_executor>;
static_assert(exiting_model<host_stages, host_executor::stream>);

const formats::onnx_dimension rows{.value = -1, .name = "batch"};
const formats::onnx_dimension three{.value = 3};

/// x [batch, 3] -> x + 1 as `to`, with x itself as an output before it if it is passed on.
formats::onnx_model adds(const std::string& from, const std::string& to, bool passes) {
  test::onnx_builder b{"adds"};
  b.input(from, data_type::f32, {rows, three});
  if (passes) b.output(from, data_type::f32, {rows, three});
  b.node("Add", {from, b.constant({}, {1.0F})}, {}, to);
  b.output(to, data_type::f32, {rows, three});
  return b.done();
}
/// x, y -> x · y.
formats::onnx_model multiplies() {
  test::onnx_builder b{"adds"};
  b.input("x", data_type::f32, {rows, three});
  b.input("y", data_type::f32, {rows, three});
  b.node("Mul", {"x", "y"}, {}, "z");
  b.output("z", data_type::f32, {rows, three});
  return b.done();
}

test::gist why_not(const std::vector<std::shared_ptr<const session>>& stages) {
  return test::gist_of<config_error>([&] { (void)interface_of(stages); });
}

TEST_CASE("an output that is an input has the input's values") {
  const auto s = load(adds("x", "y", true));
  const auto out = answers(*s, {bytes_of(std::vector<float>{1, 2, 3, 4, 5, 6})}, 2);
  CHECK(values_of<float>(out[0]) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(values_of<float>(out[1]) == std::vector<float>{2, 3, 4, 5, 6, 7});
}

TEST_CASE("sessions are run as stages of one model, with rows of several tensors between") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  const std::vector<std::shared_ptr<const session>> sessions{load(adds("x", "y", true)),
                                                             load(multiplies())};
  host_stages m{e, sessions, 2};
  CHECK(m.name() == "adds");
  REQUIRE(m.stages() == 2);
  CHECK(m.boundary_bytes(0) == 12);
  CHECK(m.boundary_bytes(1) == 32);  // Two tensors, each at a multiple of 8.
  CHECK(m.boundary_bytes(2) == 12);
  const model_interface whole = interface_of(sessions);
  CHECK(whole.inputs[0].name == "x");
  CHECK(whole.outputs[0].name == "z");

  auto in = e.allocate(24);
  auto between = e.allocate(64);
  auto out = e.allocate(24);
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  std::memcpy(in.data(), x.data(), 24);
  m.enqueue(0, stream,
            {.input = in.data(),
             .output = between.data(),
             .input_stride = 12,
             .output_stride = 32,
             .first = 0,
             .count = 2});
  m.enqueue(1, stream,
            {.input = between.data(),
             .output = out.data(),
             .input_stride = 32,
             .output_stride = 12,
             .first = 0,
             .count = 2});
  REQUIRE(failure_of(e, stream) == "");
  CHECK(values_of<float>(std::span<const std::byte>{out.data(), 24}) ==
        std::vector<float>{2, 6, 12, 20, 30, 42});
}

TEST_CASE("stages that do not fit each other are refused by stage and tensor") {
  const auto first = load(adds("x", "y", false));
  CHECK(why_not({first, load(adds("y", "z", false))}) == "no error");
  CHECK(why_not({}) == "onnx_stages: stages ... at least 1");
  CHECK(why_not({first, first}) ==
        "model 'adds', stage 2: input 'x' ... not output 'y' ... stage 1: ... same name, type");
  CHECK(why_not({first, load(multiplies())}) ==
        "model 'adds', stage 2: 2 inputs: ... 1 ... stage 1 gives");
  const auto alone = load(adds("y", "z", false), {.name = "adds", .has_batch = false});
  CHECK(why_not({first, alone}) != "no error");
}

TEST_CASE("tensors of requests are described, others are not") {
  test::onnx_builder b{"parts"};
  const formats::onnx_dimension length{.value = -1, .name = "length"};
  b.input("ids", data_type::i64, {rows, length});
  b.node("Cast", {"ids"}, {{"to", std::int64_t{1}}}, "numbers");
  b.node("Shape", {"ids"}, {}, "shape");
  b.node("ReduceSum", {"numbers", b.integers({1}, {1})}, {{"keepdims", std::int64_t{1}}}, "sums");
  b.node("ReduceSum", {"numbers", b.integers({1}, {0})}, {{"keepdims", std::int64_t{0}}}, "over");
  b.node("Concat", {"numbers", "numbers"}, {{"axis", std::int64_t{1}}}, "twice");
  for (const char* name : {"numbers", "shape", "sums", "over", "twice"}) {
    b.model().outputs.push_back({.name = name});
  }
  const std::string bytes = formats::to_bytes(b.done());
  const auto found = describe_outputs(runtime(), std::as_bytes(std::span{bytes}),
                                      {.name = "parts", .has_batch = true});
  REQUIRE(found.size() == 5);
  CHECK(found[0] ==
        tensor_info{.name = "numbers", .type = data_type::f32, .shape = {size_dimension}});
  CHECK_FALSE(found[1]);  // [2]: of no request.
  CHECK(found[2] == tensor_info{.name = "sums", .type = data_type::f32, .shape = {1}});
  CHECK_FALSE(found[3]);  // [length]: over all requests.
  CHECK_FALSE(found[4]);  // [batch, 2 · length].
}

/// x [batch, 3] -> x + 1 as `early` and 3 x as `other`; then their sum, `late`.
formats::onnx_model first_half() {
  test::onnx_builder b{"halves"};
  b.input("x", data_type::f32, {rows, three});
  b.node("Add", {"x", b.constant({}, {1.0F})}, {}, "early");
  b.node("Mul", {"x", b.constant({}, {3.0F})}, {}, "other");
  b.output("other", data_type::f32, {rows, three});
  b.output("early", data_type::f32, {rows, three});
  return b.done();
}
formats::onnx_model second_half() {
  test::onnx_builder b{"halves"};
  b.input("other", data_type::f32, {rows, three});
  b.input("early", data_type::f32, {rows, three});
  b.node("Add", {"early", "other"}, {}, "late");
  b.output("late", data_type::f32, {rows, three});
  b.output("early", data_type::f32, {rows, three});
  return b.done();
}

TEST_CASE("an output that is there before the end is an exit, in its place of the model's rows") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  const std::vector<std::shared_ptr<const session>> both{load(first_half()), load(second_half())};
  host_stages m{e, both, 4};
  CHECK(m.has_exit(0));
  CHECK(m.outputs_after(0) == 2);  // Of late and early, the second.
  CHECK_FALSE(m.has_exit(1));
  CHECK(m.outputs_after(1) == 0);
  const row_layout between{both[0]->interface().outputs, 1};
  const row_layout result{both[1]->interface().outputs, 1};
  REQUIRE(m.boundary_bytes(1) == between.bytes());
  std::vector<std::byte> hidden(4 * between.bytes());
  std::vector<std::byte> out(4 * result.bytes(), std::byte{0xEE});
  const std::vector<std::byte> untouched = out;
  std::vector<float> x;
  for (int i = 0; i < 12; ++i) x.push_back(static_cast<float>(i));
  m.enqueue(0, stream,
            {.input = reinterpret_cast<std::byte*>(x.data()),
             .output = hidden.data(),
             .input_stride = 12,
             .output_stride = between.bytes(),
             .first = 1,
             .count = 2});
  m.enqueue_exit(0, stream,
                 {.input = hidden.data(),
                  .output = out.data(),
                  .input_stride = between.bytes(),
                  .output_stride = result.bytes(),
                  .first = 1,
                  .count = 2});
  REQUIRE(failure_of(e, stream) == "");
  for (std::size_t r = 0; r < 4; ++r) {
    const std::byte* const row = out.data() + r * result.bytes();
    if (r == 0 || r == 3) {
      CHECK(std::memcmp(row, untouched.data(), result.bytes()) == 0);
      continue;
    }
    CHECK(std::memcmp(row, untouched.data(), result.offset(1)) == 0);
    float early[3];
    std::memcpy(early, row + result.offset(1), sizeof(early));
    for (std::size_t k = 0; k < 3; ++k) CHECK(early[k] == x[3 * r + k] + 1);
  }
}

}  // namespace
}  // namespace cohort::runtime::onnx::staged_test
