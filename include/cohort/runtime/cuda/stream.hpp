// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA streams as values: `stream` owns one, `stream_view` refers to one.
#pragma once

#include <cohort/core/version.hpp>

#include <cuda_runtime_api.h>

#include <cohort/runtime/cuda/error.hpp>

#include <cstddef>
#include <utility>

namespace cohort::runtime::cuda {

/// A non-owning reference to a stream. There is no implicit default stream: it cannot be made from
/// 0 or nullptr.
class stream_view {
 public:
  constexpr stream_view(cudaStream_t s) noexcept : native_{s} {}  // NOLINT: implicit on purpose.
  stream_view(int) = delete;
  stream_view(std::nullptr_t) = delete;

  [[nodiscard]] constexpr cudaStream_t native() const noexcept { return native_; }

  /// Whether calls on it are recorded into a graph at the moment.
  [[nodiscard]] bool is_capturing() const noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(native_, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
  }
  /// Whether all work so far has finished. The loss of the device counts as finished.
  [[nodiscard]] bool is_idle() const noexcept {
    const cudaError_t e = cudaStreamQuery(native_);
    if (e != cudaSuccess) (void)cudaGetLastError();
    return e == cudaSuccess || is_sticky(e);
  }

 private:
  cudaStream_t native_;
};

/// A stream that does not synchronise with the default stream. Movable; its destructor does not
/// wait: CUDA ends the stream when its work is done.
class stream {
 public:
  /// Empty; only to be assigned to.
  stream() noexcept = default;
  /// A new stream of the current device. @throws cuda_error If it cannot be made.
  [[nodiscard]] static stream make();
  /// Takes over a stream.
  explicit stream(cudaStream_t owned) noexcept : native_{owned} {}
  stream(stream&& other) noexcept : native_{std::exchange(other.native_, nullptr)} {}
  stream& operator=(stream&& other) noexcept {
    stream old{std::move(*this)};
    native_ = std::exchange(other.native_, nullptr);
    return *this;
  }
  ~stream();

  [[nodiscard]] stream_view view() const noexcept { return native_; }
  [[nodiscard]] cudaStream_t native() const noexcept { return native_; }
  [[nodiscard]] explicit operator bool() const noexcept { return native_ != nullptr; }

 private:
  cudaStream_t native_ = nullptr;
};

}  // namespace cohort::runtime::cuda
