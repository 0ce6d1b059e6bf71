// SPDX-License-Identifier: Apache-2.0
#include <runtime/onnx/shapes.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::runtime::onnx::detail::shapes_test {
namespace {

using tensors = std::vector<declared_tensor>;
using shape = std::vector<std::int64_t>;
using shapes = std::vector<shape>;

const dimension batch{.value = -1, .name = "batch"};
const dimension length{.value = -1, .name = "length"};
const dimension open{};  // Dynamic, without a name.
dimension of(std::int64_t n) { return {.value = n}; }
dimension named(const char* name) { return {.value = -1, .name = name}; }

declared_tensor x(std::vector<dimension> s) { return {.name = "x", .shape = std::move(s)}; }
declared_tensor y(std::vector<dimension> s) { return {.name = "y", .shape = std::move(s)}; }

/// A model whose outputs have the shapes that a function of rows and size gives.
using outputs_of = std::function<shapes(std::uint32_t rows, std::uint32_t size)>;

described_model read(const tensors& in, const tensors& out, const session_options& o = {},
                     const outputs_of& run = {}) {
  return describe(in, out, o,
                  [&](std::span<const tensor_info>, bool, std::uint32_t rows, std::uint32_t size) {
                    REQUIRE(run);  // Nobody else asks for a run.
                    return run(rows, size);
                  });
}
test::gist refusal(const tensors& in, const tensors& out, const session_options& o = {},
                   const outputs_of& run = {}) {
  return test::gist_of<config_error>([&] { (void)read(in, out, o, run); });
}

TEST_CASE("dimension 0 is the batch if it is dynamic in every tensor") {
  const described_model m = read({x({batch, of(3)})}, {y({batch, of(2)})});
  CHECK(m.has_batch);
  CHECK(m.interface.max_size == 1);
  CHECK(m.interface.inputs[0].shape == shape{3});
  CHECK(m.interface.outputs[0].shape == shape{2});
  CHECK(read({x({open, of(3)})}, {y({open, of(2)})}).has_batch);
  CHECK_FALSE(read({x({of(1), of(3)})}, {y({of(1), of(2)})}).has_batch);
  CHECK_FALSE(read({x({batch, of(3)})}, {y({of(4), of(2)})}).has_batch);
}

TEST_CASE("a model that is said to have no batch has a size instead") {
  const described_model m =
      read({x({length, of(3)})}, {y({length, of(2)})}, {.max_size = 9, .has_batch = false});
  CHECK_FALSE(m.has_batch);
  CHECK(m.interface.max_size == 9);
  CHECK(m.interface.inputs[0].shape == shape{size_dimension, 3});
  CHECK(m.interface.outputs[0].shape == shape{size_dimension, 2});
}

TEST_CASE("a batch that is asked for and is not there is refused by tensor and dimension") {
  const session_options o{.has_batch = true};
  const std::string rest = ": ... batch ... dimension 0";
  CHECK(refusal({x({of(1), of(3)})}, {y({batch})}, o) ==
        "input 'x', dimension 0 ... not dynamic" + rest);
  CHECK(refusal({x({batch})}, {y({of(4)})}, o) == "output 'y', dimension 0 ... not dynamic" + rest);
  CHECK(refusal({x({batch}), y({named("n")})}, {y({batch})}, o) ==
        "input 'y', dimension 0 ... called 'n' ... 'batch'" + rest);
  CHECK(refusal({x({batch, batch})}, {y({batch})}, o) ==
        "input 'x', dimension 1 ... 'batch' ... dimension 0" + rest);
  CHECK(refusal({x({batch})}, {y({})}, o, [](auto, auto) { return shapes{{}}; }) ==
        "output 'y', dimension 0 ... not ... batch" + rest);
}

TEST_CASE("the one name beside the batch's is the size, in inputs and outputs") {
  const described_model m =
      read({x({batch, length}), x({batch, length, of(2)})}, {y({batch, of(4), length})});
  CHECK(m.interface.max_size == 512);
  CHECK(m.interface.inputs[0].shape == shape{size_dimension});
  CHECK(m.interface.inputs[1].shape == shape{size_dimension, 2});
  CHECK(m.interface.outputs[0].shape == shape{4, size_dimension});
}

TEST_CASE("several dynamic dimensions of different names are refused") {
  CHECK(refusal({x({batch, length, named("width")})}, {y({batch})}) ==
        "input 'x', dimension 2 ... dynamic ... called 'width': ... one dynamic dimension ... "
        "('length')");
  CHECK(refusal({x({batch, open, open})}, {y({batch})}) ==
        "input 'x', dimension 2 ... dynamic ... no name: ... one dynamic dimension ... ('')");
  CHECK(refusal({x({batch, length})}, {y({of(3)})}) ==
        "input 'x', dimension 1 ... dynamic ... called 'length': ... one dynamic dimension ... "
        "('batch'); no batch ... output 'y', dimension 0 ... not dynamic");
}

TEST_CASE("dimensions of outputs that no name explains are found by two runs") {
  // 2 rows of size 6, 3 rows of size 12: dimension 1 is the size, 2 a constant.
  const auto run = [](std::uint32_t rows, std::uint32_t size) { return shapes{{rows, size, 7}}; };
  const described_model m = read({x({batch, length})}, {y({open, open, named("other")})}, {}, run);
  CHECK(m.interface.outputs[0].shape == shape{size_dimension, 7});
  // An output that declares nothing: its rank is found, too.
  CHECK(read({x({batch, length})}, {y({})}, {}, run).interface.outputs[0].shape ==
        shape{size_dimension, 7});
}

TEST_CASE("an output that is neither constant nor the size is refused by dimension") {
  CHECK(refusal({x({batch, length})}, {y({batch, open})}, {},
                [](std::uint32_t rows, std::uint32_t size) { return shapes{{rows, 2 * size}}; }) ==
        "output 'y', dimension 1 ... 12 ... size 6 ... 24 ... size 12: ... at least 1 ... size");
  CHECK(refusal({x({batch})}, {y({batch, open})}, {}, [](std::uint32_t rows, std::uint32_t) {
          return shapes{{rows, 0}};
        }) == "output 'y', dimension 1 ... 0 ... size 1 ... 0 ... size 1: ... at least 1 ... size");
  CHECK(refusal({x({batch, length})}, {y({})}, {}, [](std::uint32_t rows, std::uint32_t size) {
          return size > 6 ? shapes{{rows, 1}} : shapes{{rows}};
        }) == "output 'y' ... not always ... dimensions");
}

TEST_CASE("an output without the batch makes dimension 0 of inputs the size") {
  const described_model m =
      read({x({named("n"), of(3)})}, {y({})}, {}, [](auto, auto) { return shapes{{}}; });
  CHECK_FALSE(m.has_batch);
  CHECK(m.interface.inputs[0].shape == shape{size_dimension, 3});
  CHECK(m.interface.outputs[0].shape.empty());
}

TEST_CASE("probes never ask for more than the largest size") {
  std::vector<std::uint32_t> asked;
  const auto run = [&](std::uint32_t rows, std::uint32_t size) {
    asked.push_back(size);
    return shapes{{rows, size}};
  };
  static_cast<void>(read({x({batch, length})}, {y({batch, open})}, {.max_size = 5}, run));
  CHECK(asked == std::vector<std::uint32_t>{2, 5});
}

TEST_CASE("empty, negative and overflowing shapes are refused by tensor") {
  CHECK(refusal({x({batch, of(0)})}, {y({batch})}) ==
        "input 'x', dimension 1 ... 0: ... at least 1");
  CHECK(refusal({x({batch})}, {y({batch, of(-2)})}) ==
        "output 'y', dimension 1 ... -2: ... at least 1");
  const dimension huge = of(std::int64_t{1} << 62);
  CHECK(refusal({x({batch, huge, huge})}, {y({batch})}) ==
        "tensor 'x': ... row ... too large: ... 1 TiB");
  CHECK(refusal({x({batch})}, {y({batch, huge})}) ==
        "tensor 'y': ... row ... too large: ... 1 TiB");
  CHECK(refusal({}, {y({batch})}) == "... no inputs ...");
}

TEST_CASE("a mask among the inputs says that rows may be padded") {
  const declared_tensor mask{.name = "Encoder.Attention_Mask", .shape = {batch, length}};
  CHECK(read({x({batch, length}), mask}, {y({batch, length, of(8)}), y({batch, of(4)})}).pads);
  CHECK_FALSE(read({x({batch, length})}, {y({batch, length})}).pads);
  CHECK_FALSE(read({x({batch, length}), mask}, {y({batch, length})}, {.pads = padding::none}).pads);
  // Without a size there is nothing to pad.
  CHECK_FALSE(read({x({batch, of(4)})}, {y({batch})}, {.pads = padding::zeros}).pads);
  // 3 channels of a length: one of a shorter request does not start where that of a longer does.
  CHECK_FALSE(read({x({batch, length}), mask}, {y({batch, of(3), length})}).pads);
}

TEST_CASE("padding that is asked for needs the size before all other dimensions") {
  const session_options o{.pads = padding::zeros};
  CHECK(read({x({batch, of(1), length, of(4)})}, {y({batch, length})}, o).pads);
  const std::string rest = " ... padded: ... dynamic dimension ... not 1";
  CHECK(refusal({x({batch, length})}, {y({batch, of(3), length})}, o) == "tensor 'y'" + rest);
  CHECK(refusal({x({batch, length, length})}, {y({batch})}, o) == "tensor 'x'" + rest);
}

}  // namespace
}  // namespace cohort::runtime::onnx::detail::shapes_test
