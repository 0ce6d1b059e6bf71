// SPDX-License-Identifier: Apache-2.0
// The decoder of the GPU, its two streams and the loop over it, on the host: every kernel emulated.
#include <llama/cuda/backend.hpp>
#include <llama/cuda/emulated_device.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include "decoder_conformance.hpp"

namespace cohort::llama::device {
namespace {

struct emulated_fixture {
  using device_type = emulated_device;
  static std::unique_ptr<emulated_device> make(std::size_t bytes) {
    return std::make_unique<emulated_device>(
        runtime::host_options{.pool_bytes = bytes, .queue_depth = 4096});
  }
};

TEST_CASE("prefill and decode give the host's logits in f32") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    conformance::check_logits<emulated_fixture>(seed, runtime::data_type::f32, 1e-5);
  }
}
TEST_CASE("prefill and decode give the host's logits in bf16 and f16, but for rounding") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    conformance::check_logits<emulated_fixture>(seed, runtime::data_type::bf16, 4e-2);
    conformance::check_logits<emulated_fixture>(seed, runtime::data_type::f16, 5e-3);
  }
}
TEST_CASE("a prompt in pieces, mixed with others, is the prompt at once, bit for bit") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    conformance::check_pieces<emulated_fixture>(seed, runtime::data_type::f32, 0);
    conformance::check_pieces<emulated_fixture>(seed, runtime::data_type::bf16, 0);
  }
}
TEST_CASE(
    "tokens are those of the host's solo run, whatever shares the batch, in pieces or shared") {
  conformance::token_counts counts;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    conformance::check_tokens<emulated_fixture>(seed, counts);
  }
  CHECK(counts.preemptions > 0);
  CHECK(counts.prefix_hits > 0);
  CHECK(counts.pieces > 0);
}

}  // namespace
}  // namespace cohort::llama::device
