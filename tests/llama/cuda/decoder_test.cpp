// SPDX-License-Identifier: Apache-2.0
// The decoder and its loop on a GPU, against those of the host. Needs a GPU and cuBLAS.
#include <llama/cuda/decoder.hpp>

#include <cohort/runtime/cuda/executor.hpp>
#include <llama/cuda/backend.hpp>
#include <llama/cuda/cuda_device.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "decoder_conformance.hpp"

namespace cohort::llama::device::decoder_test {
namespace {

struct gpu_fixture {
  using device_type = cuda_device;
  static std::unique_ptr<cuda_device> make(std::size_t bytes) {
    return std::make_unique<cuda_device>(
        runtime::cuda_options{.pool_bytes = bytes, .workspace_bytes = std::size_t{4} << 20U});
  }
};

TEST_CASE("a GPU's prefill and decode give the host's logits in f32") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    conformance::check_logits<gpu_fixture>(seed, runtime::data_type::f32, 1e-4);
  }
}
TEST_CASE("a GPU's prefill and decode give the host's logits in bf16 and f16, but for rounding") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    conformance::check_logits<gpu_fixture>(seed, runtime::data_type::bf16, 4e-2);
    conformance::check_logits<gpu_fixture>(seed, runtime::data_type::f16, 5e-3);
  }
}
TEST_CASE(
    "on a GPU a prompt in pieces, mixed with others, is the prompt at once, but for rounding") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    conformance::check_pieces<gpu_fixture>(seed, runtime::data_type::f32, 1e-4);
    conformance::check_pieces<gpu_fixture>(seed, runtime::data_type::bf16, 4e-2);
  }
}
TEST_CASE(
    "a GPU's tokens are those of the host's solo run, whatever shares the batch, in pieces or "
    "shared") {
  conformance::token_counts counts;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    conformance::check_tokens<gpu_fixture>(seed, counts);
  }
  CHECK(counts.preemptions > 0);
  CHECK(counts.prefix_hits > 0);
  CHECK(counts.pieces > 0);
}

}  // namespace
}  // namespace cohort::llama::device::decoder_test
