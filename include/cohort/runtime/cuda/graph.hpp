// SPDX-License-Identifier: Apache-2.0
/// @file
/// A launch sequence recorded once and replayed with one call.
#pragma once

#include <cuda_runtime_api.h>

#include <cohort/runtime/cuda/stream.hpp>

#include <utility>

namespace cohort::runtime::cuda {

/// An executable graph. Movable; it must not be destroyed while it runs.
class graph {
 public:
  /// Empty; only to be assigned to.
  graph() noexcept = default;
  graph(graph&& other) noexcept : native_{std::exchange(other.native_, nullptr)} {}
  graph& operator=(graph&& other) noexcept {
    graph old{std::move(*this)};
    native_ = std::exchange(other.native_, nullptr);
    return *this;
  }
  ~graph();

  /// Enqueues the sequence on `s`. @throws cuda_error
  void launch(stream_view s) const;
  [[nodiscard]] cudaGraphExec_t native() const noexcept { return native_; }
  [[nodiscard]] explicit operator bool() const noexcept { return native_ != nullptr; }

 private:
  friend class graph_capture;
  cudaGraphExec_t native_ = nullptr;
};

/// While it lives, work enqueued on the stream is recorded instead of run. The same holds for
/// streams that wait for an event recorded there, until another event joins them. Recorded work
/// keeps its addresses. These streams must not be used for anything else meanwhile.
class graph_capture {
 public:
  /// @throws cuda_error
  explicit graph_capture(stream_view s);
  /// Ends a capture that was not finished, and drops it.
  ~graph_capture();
  graph_capture(const graph_capture&) = delete;
  graph_capture& operator=(const graph_capture&) = delete;

  /// Ends the capture. Costs milliseconds. @throws cuda_error If something was enqueued that cannot
  /// be captured.
  [[nodiscard]] graph finish();

 private:
  cudaStream_t stream_;
};

}  // namespace cohort::runtime::cuda
