// SPDX-License-Identifier: Apache-2.0
// The decoder's kernels, block by block on the host: indices, masks, barriers, order. No GPU.
#include <llama/cuda/emulated_block.hpp>
#include <llama/cuda/launches.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <support/is_sanitized.hpp>

#include "kernel_conformance.hpp"

namespace cohort::llama::device::programs_test {
namespace {

struct emulated_fixture {
  std::byte* memory(std::size_t bytes) {
    return reinterpret_cast<std::byte*>(blocks.emplace_back((bytes + 15) / 16).data());
  }
  template <class Args>
  void run(int element, const Args& a) {
    enqueue(emulated_launcher{++seed}, element, a);
  }
  struct alignas(16) unit {
    std::byte bytes[16];
  };
  std::deque<std::vector<unit>> blocks;
  std::uint32_t seed = 0;
};

TEST_CASE("kernels compute what they say in f32") {
  conformance::check_all<float, emulated_fixture>(test::seeds(40));
}
TEST_CASE("kernels compute what they say in f16") {
  conformance::check_all<f16, emulated_fixture>(test::seeds(40));
}
TEST_CASE("kernels compute what they say in bf16") {
  conformance::check_all<bf16, emulated_fixture>(test::seeds(40));
}

TEST_CASE("every f16 and bf16 survives widening, and all between two goes to the nearer") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const f16 h{static_cast<std::uint16_t>(i)};
    const bf16 b{static_cast<std::uint16_t>(i)};
    f16 h2{};
    bf16 b2{};
    narrow(widen(h), h2);
    narrow(widen(b), b2);
    if (std::isnan(widen(h))) {
      CHECK(std::isnan(widen(h2)));
    } else {
      REQUIRE(h2.bits == h.bits);
    }
    if (std::isnan(widen(b))) {
      CHECK(std::isnan(widen(b2)));
    } else {
      REQUIRE(b2.bits == b.bits);
    }
    // Up to the next: a quarter goes down, three quarters up, the middle to the even one.
    if ((i & 0x7FFFU) < 0x7BFFU) {
      const float low = widen(h);
      const float high = widen(f16{static_cast<std::uint16_t>(i + 1)});
      narrow(low + (high - low) * 0.25F, h2);
      REQUIRE(h2.bits == i);
      narrow(low + (high - low) * 0.75F, h2);
      REQUIRE(h2.bits == i + 1);
      narrow(low + (high - low) * 0.5F, h2);
      REQUIRE(h2.bits == i + i % 2);
    }
    if ((i & 0x7FFFU) < 0x7F7FU) {
      const auto bits = i << 16U;
      narrow(std::bit_cast<float>(bits | 0x7FFFU), b2);
      REQUIRE(b2.bits == i);
      narrow(std::bit_cast<float>(bits | 0x8001U), b2);
      REQUIRE(b2.bits == i + 1);
      narrow(std::bit_cast<float>(bits | 0x8000U), b2);
      REQUIRE(b2.bits == i + i % 2);
    }
  }
  f16 h{};
  narrow(65519.0F, h);
  CHECK(widen(h) == 65504);
  narrow(65520.0F, h);
  CHECK(std::isinf(widen(h)));
  narrow(-1e30F, h);
  CHECK(widen(h) == -INFINITY);
}

// The emulation must see mistakes, or the tests above would prove little.
struct racing {
  int mistake;
};
struct racing_program {
  template <class Block>
  static void run(Block& b, const racing& a) {
    auto s = b.shared(0, 64);
    b.each([&](unsigned t) {
      if (a.mistake != 1 || t != 3) s.set(t, 1);
    });
    if (a.mistake != 2) b.barrier();
    float sum = 0;
    b.each([&](unsigned t) { sum += s.get((t + 1) % 32); });
    if (a.mistake != 3) b.barrier();
    b.each([&](unsigned t) { s.set(t, 2); });
    if (a.mistake == 4) b.each([&](unsigned t) { s.set(t + 33, 2); });
    if (a.mistake == 5) b.each([&](unsigned t) { (void)s.get4(t); });
    if (a.mistake == 6) (void)b.shared(8, 64);
    typename Block::template registers<float, 2> r{b};
    if (a.mistake == 7) b.each([&](unsigned t) { r.at(t, 2) = 1; });
    if (a.mistake == 8) b.sum_over(r, 0, 24);
  }
};
TEST_CASE("the emulation finds missing barriers, unwritten reads and indices out of range") {
  const emulated_launcher launch{1};
  CHECK_NOTHROW(launch.operator()<racing_program>(2, 1, 1, 32, 64, racing{0}));
  for (int mistake = 1; mistake <= 8; ++mistake) {
    CAPTURE(mistake);
    CHECK_THROWS_AS(launch.operator()<racing_program>(2, 1, 1, 32, 64, racing{mistake}),
                    emulation_error);
  }
}

}  // namespace
}  // namespace cohort::llama::device::programs_test
