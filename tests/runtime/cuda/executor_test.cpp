// SPDX-License-Identifier: Apache-2.0
// What the CUDA executor adds to the concept. Needs a GPU.
#include <cohort/runtime/cuda/executor.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/partition.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda_fixture.hpp"

namespace cohort::runtime::executor_test {
namespace {

using conformance::cuda_notified;

bool fails(cuda_executor& e, cuda_executor::stream& s) {
  cuda_notified n;
  e.notify(s, n);
  n.done.acquire();
  return n.failed;
}

const cuda_options small{.pool_bytes = std::size_t{1} << 20U, .workspace_bytes = 0};

TEST_CASE("memory retired in the order of a stream is used again there at once") {
  cuda_executor e{small};
  auto s = e.make_stream();
  auto other = e.make_stream();
  auto mark = e.make_event();
  cuda::pinned_buffer gate{sizeof(int)};
  std::memset(gate.data(), 0, sizeof(int));
  e.launch(s, [](cuda::stream_view v) { test_kernels::load(v.native()); });
  CHECK_FALSE(fails(e, s));
  e.launch(s, [&](cuda::stream_view v) {
    test_kernels::hold(v.native(), reinterpret_cast<const int*>(gate.data()));
  });
  auto all = e.allocate(std::size_t{1} << 20U);
  const std::byte* where = all.data();
  e.retire(std::move(all), s);
  CHECK(e.free_bytes() == 0);  // Behind the kernel that spins.
  CHECK_THROWS_AS((void)e.allocate(64), resource_error);
  auto again = e.allocate(std::size_t{1} << 20U, s);
  CHECK(again.data() == where);
  e.retire(std::move(again), s);
  // Another stream takes it behind an event: its work waits, the host does not.
  auto third = e.allocate(std::size_t{1} << 20U, other);
  CHECK(third.data() == where);
  e.record(other, mark);
  CHECK_FALSE(e.is_done(mark));
  reinterpret_cast<volatile int*>(gate.data())[0] = 1;
  CHECK_FALSE(fails(e, other));
  CHECK(e.is_done(mark));
}
TEST_CASE("a sequence is captured once and replayed") {
  cuda_executor e{cuda_options{.pool_bytes = std::size_t{1} << 20U,
                               .pool_kind = cuda::memory_kind::pinned,
                               .workspace_bytes = 0}};
  auto s = e.make_stream();
  auto side = e.make_stream();
  auto fork = e.make_event();
  auto join = e.make_event();
  auto a = e.allocate(8);
  auto b = e.allocate(8);
  auto c = e.allocate(8);
  const auto step = [&](cuda_executor::stream& on, std::byte* to, const std::byte* from) {
    e.launch(on, [&](cuda::stream_view v) {
      test_kernels::copy(v.native(), to, from, 8, 1, 8, 8, 1000);
    });
  };
  step(s, a.data(), a.data());  // Loads the kernel, which cannot be done in a capture.
  CHECK_FALSE(fails(e, s));
  const cuda::graph g = e.capture(s, [&] {
    step(s, b.data(), a.data());
    e.record(s, fork);
    e.wait(side, fork);
    step(side, c.data(), b.data());
    e.record(side, join);
    e.wait(s, join);
  });
  for (std::uint64_t value = 1; value <= 3; ++value) {
    std::memcpy(a.data(), &value, 8);
    e.replay(s, g);
    CHECK_FALSE(fails(e, s));
    std::uint64_t seen = 0;
    std::memcpy(&seen, c.data(), 8);
    CHECK(seen == value);
  }
}
TEST_CASE("shares become partitions, disjoint while they fit, and streams move between them") {
  const auto found = cuda::find_devices();
  const cuda::device_description& d = found.devices.front();
  cuda_executor e{small};
  if (d.partition_steps < 2) {
    CHECK_THROWS_AS((void)e.make_stream(device_share{50}), resource_error);
    return;
  }
  auto all = e.make_stream();
  CHECK(all.multiprocessors() == d.multiprocessors);
  auto half = e.make_stream(device_share{50});
  auto rest = e.make_stream(device_share{50});
  CHECK(half.multiprocessors() + rest.multiprocessors() <= d.multiprocessors);
  CHECK(half.multiprocessors() % d.partition_step == 0);
  // The last step has what is left over of the device: together they have all of it.
  if (d.partition_steps % 2 == 0) {
    CHECK(half.multiprocessors() + rest.multiprocessors() == d.multiprocessors);
  }
  for (int i = 0; i < 10; ++i) {
    e.launch(half, [](cuda::stream_view v) { test_kernels::spin(v.native(), 64, 1000); });
    e.rebind(half, device_share{i % 2 == 0 ? 25U : 50U});
    e.launch(half, [](cuda::stream_view v) { test_kernels::spin(v.native(), 64, 1000); });
    CHECK_FALSE(fails(e, half));
    CHECK_FALSE(fails(e, rest));
    // Never on what the other one has.
    CHECK(half.multiprocessors() + rest.multiprocessors() <= d.multiprocessors);
  }
}
TEST_CASE(
    "a partition that takes another's place may use the same multiprocessors, and no others'") {
  const auto parts = cuda::partitioner::make(0);
  if (parts->steps() < 4) return;
  auto a = parts->make_partition(device_share{50});
  auto b = parts->make_partition(device_share{50});
  for (int i = 0; i < 6; ++i) {
    auto next = parts->make_partition(device_share{i % 2 == 0 ? 25U : 50U}, b.get());
    CHECK(b->steps().empty());
    b = std::move(next);
    for (const unsigned step : b->steps()) {
      CHECK(std::ranges::find(a->steps(), step) == a->steps().end());
    }
  }
}
TEST_CASE("a partition of the same steps is the same again, while kernels run elsewhere") {
  const auto parts = cuda::partitioner::make(0);
  if (parts->steps() < 4) return;
  cuda_executor e{small};
  auto busy = e.make_stream();
  auto s = e.make_stream(device_share{25});
  e.rebind(s, device_share{50});
  e.rebind(s, device_share{25});
  cuda::pinned_buffer gate{sizeof(int)};
  std::memset(gate.data(), 0, sizeof(int));
  e.launch(s, [](cuda::stream_view v) { test_kernels::load(v.native()); });
  CHECK_FALSE(fails(e, s));
  e.launch(busy, [&](cuda::stream_view v) {
    test_kernels::hold(v.native(), reinterpret_cast<const int*>(gate.data()));
  });
  auto held = e.make_event();
  e.record(busy, held);
  for (const unsigned percent : {50U, 25U, 50U}) {
    e.rebind(s, device_share{percent});
    e.launch(s, [](cuda::stream_view v) { test_kernels::spin(v.native(), 4, 1000); });
    CHECK_FALSE(fails(e, s));
  }
  CHECK_FALSE(e.is_done(held));  // A new context would have waited for the kernel that spins.
  reinterpret_cast<volatile int*>(gate.data())[0] = 1;
  CHECK_FALSE(fails(e, busy));
}
TEST_CASE("a product that cuBLAS refuses fails its batch, not the device") {
  if (!cuda::why_no_blas().empty()) return;
  cuda_executor e{cuda_options{.pool_bytes = std::size_t{1} << 20U}};
  auto s = e.make_stream();
  auto m = e.allocate(64 * 64 * sizeof(float));
  gemm_request g{.m = 64,
                 .n = 64,
                 .k = 64,
                 .a = m.data(),
                 .lda = 1,  // Too small.
                 .b = m.data(),
                 .ldb = 64,
                 .c = m.data(),
                 .ldc = 64};
  e.gemm(s, g);
  CHECK(fails(e, s));
  CHECK(e.is_healthy());
  g.lda = 64;
  e.gemm(s, g);
  CHECK_FALSE(fails(e, s));
}
TEST_CASE("memory is not retired, and nothing notified, while a stream is captured") {
  cuda_executor e{small};
  auto s = e.make_stream();
  cuda_notified n;
  CHECK_THROWS_AS((void)e.capture(s, [&] { e.notify(s, n); }), config_error);
  CHECK_THROWS_AS((void)e.capture(s, [&] { e.retire(e.allocate(64), s); }), config_error);
  CHECK_FALSE(fails(e, s));
}
TEST_CASE("products in f16 and bf16 are exact where the numbers are") {
  if (!cuda::why_no_blas().empty()) {
    MESSAGE(cuda::why_no_blas());
    return;
  }
  cuda_executor e{cuda_options{.pool_bytes = std::size_t{1} << 20U,
                               .pool_kind = cuda::memory_kind::pinned,
                               .workspace_bytes = std::size_t{1} << 20U}};
  auto s = e.make_stream();
  constexpr std::size_t n = 16;
  // Small integers: 11 and 8 bits of mantissa hold them.
  const auto encode = [](data_type t, int x) -> std::uint16_t {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    if (t == data_type::bf16) return static_cast<std::uint16_t>(bits >> 16U);
    if (x == 0) return 0;
    const std::uint32_t exponent = (bits >> 23U & 0xFFU) - 127 + 15;
    return static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | exponent << 10U |
                                      (bits >> 13U & 0x3FFU));
  };
  for (const data_type t : {data_type::f16, data_type::bf16}) {
    auto a = e.allocate(n * n * 2);
    auto b = e.allocate(n * n * 2);
    auto c = e.allocate(n * n * 2);
    const auto put = [&](cuda::device_buffer& m, std::size_t i, int x) {
      const std::uint16_t v = encode(t, x);
      std::memcpy(m.data() + i * 2, &v, 2);
    };
    for (std::size_t i = 0; i < n * n; ++i) {
      put(a, i, static_cast<int>(i % 3) - 1);
      put(b, i, static_cast<int>(i % 5) - 2);
      put(c, i, 0);
    }
    e.gemm(s, {.type = t,
               .m = n,
               .n = n,
               .k = n,
               .a = a.data(),
               .lda = n,
               .b = b.data(),
               .ldb = n,
               .c = c.data(),
               .ldc = n});
    REQUIRE_FALSE(fails(e, s));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        int sum = 0;
        for (std::size_t k = 0; k < n; ++k) {
          sum += (static_cast<int>((i * n + k) % 3) - 1) * (static_cast<int>((k * n + j) % 5) - 2);
        }
        std::uint16_t got = 0;
        std::memcpy(&got, c.data() + (i * n + j) * 2, 2);
        CHECK(got == encode(t, sum));
      }
    }
  }
}
TEST_CASE("a call that fails fails the next notification, and the stream goes on") {
  cuda_executor e{small};
  auto s = e.make_stream();
  e.launch(s, [](cuda::stream_view v) { test_kernels::spin(v.native(), 0, 1); });  // No blocks.
  CHECK(fails(e, s));
  CHECK_FALSE(fails(e, s));
  CHECK(e.is_healthy());
}
TEST_CASE("more memory than the device has is an error that names what is free") {
  CHECK_THROWS_WITH_AS((cuda_executor{{.pool_bytes = std::size_t{1} << 50U}}),
                       doctest::Contains("are free"), cuda::cuda_error);
}
}  // namespace
}  // namespace cohort::runtime::executor_test
