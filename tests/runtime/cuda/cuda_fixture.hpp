// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA executor under the conformance suite: streams are held by a kernel that spins.
#pragma once

#include <cohort/runtime/cuda/buffer.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <cstring>
#include <semaphore>
#include <vector>

#include <support/random_source.hpp>

#include "kernels.hpp"

namespace cohort::runtime::conformance {

struct cuda_notified : completion {
  cuda_notified() {
    invoke = [](completion& c, bool f) noexcept {
      static_cast<cuda_notified&>(c).failed = f;
      static_cast<cuda_notified&>(c).done.release();
    };
  }
  std::binary_semaphore done{0};
  bool failed = false;
};

/// Copies by a kernel that takes a random time: order must come from events, not from luck.
struct slow_copies : cuda_executor {
  using cuda_executor::cuda_executor;
  void copy(stream& s, const copy_request& r) {
    if (r.rows > 1 && (r.destination_pitch < r.row_bytes || r.source_pitch < r.row_bytes)) {
      cuda_executor::copy(s, r);  // Which refuses it.
      return;
    }
    const auto clocks = static_cast<std::int64_t>(random.below(20'000U));
    launch(s, [&](cuda::stream_view v) {
      test_kernels::copy(v.native(), r.destination, r.source, r.row_bytes, r.rows,
                         r.destination_pitch, r.source_pitch, clocks);
    });
  }
  test::random_source random{11};
};

template <class Executor, cuda::memory_kind Kind, bool Multiplies = true>
struct cuda_fixture {
  using executor_type = Executor;
  static constexpr std::size_t pool_bytes = 1 << 16;
  static constexpr std::size_t most_gates = 16;
  Executor executor{cuda_options{.pool_bytes = pool_bytes,
                                 .pool_kind = Kind,
                                 .workspace_bytes = Multiplies ? std::size_t{1} << 20U : 0}};

  cuda_fixture() {
    std::memset(gates.data(), 0, gates.size());
    // Handles of cuBLAS, kernels and copies are made ready now: while a kernel spins, that could
    // wait for it.
    std::vector<cuda_executor::stream> warm;
    for (int i = 0; i < (Multiplies ? 6 : 1); ++i) warm.push_back(executor.make_stream());
    auto some = executor.allocate(64);
    executor.copy(warm[0],
                  {.destination = some.data(), .source = some.data() + 32, .row_bytes = 8});
    executor.copy(warm[0], {.destination = some.data(),
                            .source = some.data() + 32,
                            .row_bytes = 4,
                            .rows = 2,
                            .destination_pitch = 8,
                            .source_pitch = 8});
    executor.launch(warm[0], [](cuda::stream_view v) { test_kernels::load(v.native()); });
    settle(warm[0]);
  }

  void hold(cuda_executor::stream& s) {
    const int* gate = reinterpret_cast<const int*>(gates.data()) + held++;
    executor.launch(s, [&](cuda::stream_view v) { test_kernels::hold(v.native(), gate); });
  }
  void release_all(test::random_source& random) {
    std::vector<std::size_t> closed;
    for (; released < held; ++released) closed.push_back(released);
    while (!closed.empty()) {
      std::swap(closed[random.below(closed.size())], closed.back());
      reinterpret_cast<volatile int*>(gates.data())[closed.back()] = 1;
      closed.pop_back();
    }
  }
  void settle(cuda_executor::stream& s) {
    cuda_notified n;
    executor.notify(s, n);
    n.done.acquire();
  }

  cuda::pinned_buffer gates{most_gates * sizeof(int)};
  std::size_t held = 0;
  std::size_t released = 0;
};

}  // namespace cohort::runtime::conformance
