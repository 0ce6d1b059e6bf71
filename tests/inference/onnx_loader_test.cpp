// SPDX-License-Identifier: Apache-2.0
#include <inference/onnx_loader.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace cohort::inference::onnx_loader_test {
namespace {
using namespace std::chrono_literals;
using sizes = std::vector<std::uint32_t>;

TEST_CASE("a model is loaded for each batch size where a change costs more than a batch") {
  CHECK(sizes_to_load(100ms, 8ms, 32, {}) == sizes{1, 2, 4, 8, 16, 32});
  CHECK(sizes_to_load(100ms, 8ms, 24, {}) == sizes{1, 2, 4, 8, 16, 24});
  CHECK(sizes_to_load(9ms, 8ms, 2, {}) == sizes{1, 2});
  CHECK(sizes_to_load(8ms, 8ms, 32, {}).empty());
  CHECK(sizes_to_load(-1ms, 8ms, 32, {4, 8}).empty());
}

TEST_CASE("preferred batch sizes are those that are loaded, and the largest") {
  CHECK(sizes_to_load(100ms, 8ms, 32, {4, 16}) == sizes{4, 16, 32});
  CHECK(sizes_to_load(100ms, 8ms, 16, {4, 16}) == sizes{4, 16});
  CHECK(sizes_to_load(100ms, 8ms, 8, {4, 16}) == sizes{4, 8});
}

}  // namespace
}  // namespace cohort::inference::onnx_loader_test
