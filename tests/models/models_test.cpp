// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/blas.hpp>

#include <string>
#include <vector>

#include <models/definition.hpp>
#include <models/registry.hpp>
#include <support/complaint.hpp>

#include "model_conformance.hpp"

namespace cohort::models::models_test {
namespace {

struct host_fixture {
  using executor_type = runtime::host_executor;
  using model = host_model;
  runtime::host_executor executor{
      {.pool_bytes = std::size_t{256} << 20U, .products = runtime::blas_products()}};
  auto make_factory(const definition& d, std::uint64_t seed) {
    return make_host_factory(d, executor, seed);
  }
};

TEST_CASE("every model agrees with its reference in any slot, batch and slicing") {
  conformance::check_all_models<host_fixture>();
}
TEST_CASE("the same seed gives the same model, another seed another") {
  const std::vector<std::byte> input = sample_input(info_of("lenet"), 1);
  CHECK(reference_output("lenet", 1, input) == reference_output("lenet", 1, input));
  CHECK(reference_output("lenet", 1, input) != reference_output("lenet", 2, input));
}
TEST_CASE("an unknown model is an error that names the known ones") {
  std::string refusal = "model 'alexnet' ... unknown ... lenet, ";
  const auto names = {model_names(), large_model_names()};
  for (const auto& some : names) {
    for (const std::string_view name : some) {
      if (name != "lenet") refusal += fmt::format("{}, ", name);
    }
  }
  refusal.resize(refusal.size() - 2);
  CHECK(test::gist_of<config_error>([] { (void)info_of("alexnet"); }) == refusal);
}
TEST_CASE("a slice beyond the largest batch is refused") {
  host_fixture f;
  auto stream = f.executor.make_stream();
  const auto model = make_host_factory("lenet", f.executor, 1)->make(2);
  conformance::rows<host_fixture> r{f, *model, 3, 0};
  CHECK_THROWS_AS(model->enqueue(0, stream,
                                 {.input = r.at(0),
                                  .output = r.at(1),
                                  .input_stride = r.strides[0],
                                  .output_stride = r.strides[1],
                                  .first = 0,
                                  .count = 3}),
                  config_error);
}
}  // namespace
}  // namespace cohort::models::models_test
