// SPDX-License-Identifier: Apache-2.0
// The decoder's kernels on a GPU, against double precision. Needs a GPU.
#include <llama/cuda/kernels.hpp>

#include <cohort/runtime/cuda/executor.hpp>
#include <llama/cuda/cuda_device.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <llama/cuda/weights.hpp>

#include "kernel_conformance.hpp"

namespace cohort::llama::device::kernels_test {
namespace {

/// Memory that the host can read while nothing runs; one device for all cases.
struct gpu_fixture {
  struct shared_device {
    cuda_device device{{.pool_bytes = std::size_t{256} << 20U,
                        .pool_kind = runtime::cuda::memory_kind::pinned,
                        .workspace_bytes = 0}};
    cuda_device::stream stream = device.executor().make_stream();
  };
  static shared_device& shared() {
    static shared_device s;
    return s;
  }
  std::byte* memory(std::size_t bytes) {
    return buffers.emplace_back(shared().device.executor().allocate(bytes)).data();
  }
  template <class Args>
  void run(int element, const Args& a) {
    shared().device.run(shared().stream, static_cast<runtime::data_type>(element), a);
    settle(shared().device.executor(), shared().stream);
  }
  std::vector<runtime::cuda_executor::buffer> buffers;
};

TEST_CASE("a GPU's kernels compute what they say in f32") {
  conformance::check_all<float, gpu_fixture>(60);
}
TEST_CASE("a GPU's kernels compute what they say in f16") {
  conformance::check_all<f16, gpu_fixture>(60);
}
TEST_CASE("a GPU's kernels compute what they say in bf16") {
  conformance::check_all<bf16, gpu_fixture>(60);
}

}  // namespace
}  // namespace cohort::llama::device::kernels_test
