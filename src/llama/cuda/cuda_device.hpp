// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decoder's device: a GPU.
#pragma once

#include <cohort/runtime/cuda/buffer.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <cstddef>
#include <utility>

#include "decoder_device.hpp"
#include "kernels.hpp"

namespace cohort::llama::device {

/// Kernels by CUDA, products by cuBLAS, repeated work as graphs.
class cuda_device {
 public:
  using executor_type = runtime::cuda_executor;
  using stream = executor_type::stream;
  using host_memory = runtime::cuda::pinned_buffer;
  using recording = runtime::cuda::graph;

  explicit cuda_device(const runtime::cuda_options& o) : executor_{o} {
    for (const runtime::cuda::device_description& d : runtime::cuda::find_devices().devices) {
      if (d.index == o.device) has_tensor_cores_ = d.compute_major >= 8;
    }
  }

  [[nodiscard]] executor_type& executor() noexcept { return executor_; }
  [[nodiscard]] host_memory allocate_host(std::size_t bytes) {
    return executor_.allocate_pinned(bytes);
  }
  template <class Args>
  void run(stream& s, runtime::data_type t, const Args& a) {
    executor_.launch(
        s, [&](runtime::cuda::stream_view v) { launch(v.native(), static_cast<int>(t), a); });
  }
  [[nodiscard]] bool multiplies_few_rows(runtime::data_type t) const noexcept {
    return has_tensor_cores_ && t != runtime::data_type::f32;
  }
  void copy(stream& s, const runtime::copy_request& c) { executor_.copy(s, c); }
  void multiply(stream& s, const runtime::gemm_request& g) { executor_.gemm(s, g); }

  template <class F>
  [[nodiscard]] recording record(stream& s, F enqueue) {
    return executor_.capture(s, std::move(enqueue));
  }
  void replay(stream& s, const recording& r) { executor_.replay(s, r); }

 private:
  executor_type executor_;
  bool has_tensor_cores_ = false;  // For bf16.
};
static_assert(decoder_device<cuda_device>);

}  // namespace cohort::llama::device
