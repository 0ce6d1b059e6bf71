// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decoder's device without a GPU: the same programs, block by block, on the host executor. For
/// tests; thousands of times slower than a GPU.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "decoder_device.hpp"
#include "emulated_block.hpp"
#include "launches.hpp"

namespace cohort::llama::device {

/// Products add in plain order, so that a row's bits do not depend on the batch. A program's
/// mistake fails the stream, as a kernel's would.
class emulated_device {
 public:
  using executor_type = runtime::host_executor;
  using stream = executor_type::stream;
  struct host_memory {
    std::vector<std::byte> bytes;
    [[nodiscard]] std::byte* data() noexcept { return bytes.data(); }
  };
  using recording = std::vector<std::function<void()>>;

  explicit emulated_device(const runtime::host_options& o) : executor_{o} {}

  [[nodiscard]] executor_type& executor() noexcept { return executor_; }
  [[nodiscard]] host_memory allocate_host(std::size_t bytes) {
    return {std::vector<std::byte>(bytes)};
  }
  template <class Args>
  void run(stream& s, runtime::data_type t, const Args& a) {
    // One seed for each call: threads of a block run in another order each time.
    enqueue_work(
        s, [a, t, seed = ++seed_] { enqueue(emulated_launcher{seed}, static_cast<int>(t), a); });
  }
  [[nodiscard]] static bool multiplies_few_rows(runtime::data_type t) noexcept {
    return t != runtime::data_type::f32;
  }
  void copy(stream& s, const runtime::copy_request& c) {
    expects(c.rows == 1, "emulated_device: a copy must be one row");
    enqueue_work(s, [c] { std::memcpy(c.destination, c.source, c.row_bytes); });
  }
  void multiply(stream& s, const runtime::gemm_request& g) {
    expects(!g.transpose_a && g.transpose_b && g.batches == 1 && g.alpha == 1 && g.beta == 0,
            "emulated_device: a product must be x times a transposed matrix");
    enqueue_work(s, [g] {
      if (g.type == runtime::data_type::f32) return multiply_as<float>(g);
      if (g.type == runtime::data_type::f16) return multiply_as<f16>(g);
      multiply_as<bf16>(g);
    });
  }

  template <class F>
  [[nodiscard]] recording record(stream& s, F enqueue_all) {
    recorded_.clear();
    recording_.store(&s);
    enqueue_all();
    recording_.store(nullptr);
    return std::move(recorded_);
  }
  void replay(stream& s, const recording& r) {
    executor_.launch(s, [&r] {
      for (const auto& work : r) work();
    });
  }

 private:
  template <class F>
  void enqueue_work(stream& s, F work) {
    if (recording_.load() == &s) {
      recorded_.emplace_back(std::move(work));
    } else {
      executor_.launch(s, std::move(work));
    }
  }
  template <class T>
  static void multiply_as(const runtime::gemm_request& g) {
    for (std::size_t i = 0; i < g.m; ++i) {
      for (std::size_t j = 0; j < g.n; ++j) {
        const T* a = static_cast<const T*>(g.a) + i * g.lda;
        const T* b = static_cast<const T*>(g.b) + j * g.ldb;
        float sum = 0;
        for (std::size_t k = 0; k < g.k; ++k) sum += widen(a[k]) * widen(b[k]);
        narrow(sum, static_cast<T*>(g.c)[i * g.ldc + j]);
      }
    }
  }

  executor_type executor_;
  std::atomic<const stream*> recording_{nullptr};
  recording recorded_;
  std::atomic<std::uint32_t> seed_{0};
};
static_assert(decoder_device<emulated_device>);

}  // namespace cohort::llama::device
