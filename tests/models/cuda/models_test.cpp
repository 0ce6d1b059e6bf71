// SPDX-License-Identifier: Apache-2.0
// The operations and the models on the CUDA executor. Needs a GPU and cuBLAS.
#include <doctest/doctest.h>
#include <cohort/runtime/cuda/executor.hpp>

#include <semaphore>

#include <models/cuda/cuda_ops.hpp>
#include <models/cuda/registry.hpp>

#include "../model_conformance.hpp"
#include "../ops_conformance.hpp"

namespace cohort::models::conformance::models_test {
namespace {

constexpr runtime::cuda::memory_kind readable = runtime::cuda::memory_kind::pinned;

struct cuda_ops_fixture {
  using operations = cuda_ops;
  runtime::cuda_executor executor{
      {.pool_bytes = std::size_t{4} << 20U, .pool_kind = readable, .workspace_bytes = 0}};
  cuda_ops ops{executor};
  cuda_ops::stream stream = executor.make_stream();
  void settle() {
    finished f;
    executor.notify(stream, f);
    f.done.acquire();
    REQUIRE_FALSE(f.failed);
  }
};

struct cuda_models_fixture {
  using executor_type = runtime::cuda_executor;
  using model = cuda_model;
  runtime::cuda_executor executor{{.pool_bytes = std::size_t{512} << 20U, .pool_kind = readable}};
  auto make_factory(const definition& d, std::uint64_t seed) {
    return make_cuda_factory(d, executor, seed);
  }
};

TEST_CASE("CUDA's operations compute what they say") { check_all_ops<cuda_ops_fixture>(); }
TEST_CASE("every model agrees with its reference on a GPU") {
  check_all_models<cuda_models_fixture>();
}
}  // namespace
}  // namespace cohort::models::conformance::models_test
