// SPDX-License-Identifier: Apache-2.0
/// @file
/// The executor of NVIDIA GPUs.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/runtime/cuda/buffer.hpp>
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/event.hpp>
#include <cohort/runtime/cuda/graph.hpp>
#include <cohort/runtime/cuda/stream.hpp>
#include <cohort/runtime/executor.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace cohort::runtime {

/// Options of a CUDA executor.
struct cuda_options {
  int device = 0;                                  ///< Index among the visible devices.
  std::size_t pool_bytes = std::size_t{1} << 30U;  ///< Memory for buffers; at least 256.
  cuda::memory_kind pool_kind = cuda::memory_kind::device;
  /// cuBLAS workspace of each stream, taken when the stream is made; 0: none, and no products.
  std::size_t workspace_bytes = std::size_t{32} << 20U;
  /// How long the polling thread sleeps between checks for completions while work is due; 0 means
  /// that it does not sleep. While no work is expected to end, it sleeps regardless of this value.
  std::chrono::microseconds poll_interval{10};
};

namespace detail {
class cuda_device;
class cuda_stream_state;
}  // namespace detail

/// An executor whose device is a GPU. Streams are CUDA streams, ordered by CUDA events; a share of
/// the device is a green context. Completions are found by one thread of the executor that polls
/// events, so no call here waits for the GPU, and no code runs on the driver's threads. Nothing
/// synchronises the device as a whole.
///
/// A call that fails fails the stream's next notification, as does work that fails. After an error
/// that CUDA cannot recover from, such as a kernel's access to memory that is not there, the
/// executor is unhealthy: all outstanding and later notifications say `failed`, and other devices
/// go on. Thread safety: as the `executor` concept says. Models: `executor`.
class cuda_executor {
 public:
  /// Whether results are computed, not only timed.
  static constexpr bool computes = true;

  class event;
  class stream;
  using buffer = cuda::device_buffer;

  /// @throws config_error If an option is outside its range or no device has that index.
  /// @throws resource_error If there is no device that can be used, with the reason.
  /// @throws cuda_error If the device lacks the memory.
  explicit cuda_executor(cuda_options options = {});
  ~cuda_executor();
  cuda_executor(const cuda_executor&) = delete;
  cuda_executor& operator=(const cuda_executor&) = delete;

  /// @throws resource_error If `share` is less than all and the device cannot be partitioned.
  [[nodiscard]] stream make_stream(device_share share = {});
  [[nodiscard]] event make_event();
  /// Takes memory from the pool, aligned to 256 bytes.
  /// @throws config_error If `bytes` is 0.
  /// @throws resource_error If the pool has no room; names what was asked and left.
  [[nodiscard]] buffer allocate(std::size_t bytes);
  /// As `allocate`, for work of `s` alone: also takes memory that was retired.
  [[nodiscard]] buffer allocate(std::size_t bytes, stream& s);
  /// Gives a buffer back once the work so far on `s` has finished.
  void retire(buffer b, stream& s);

  /// Host memory for copies that block no thread. The executor keeps returned memory for reuse.
  [[nodiscard]] cuda::pinned_buffer allocate_pinned(std::size_t bytes);

  void record(stream& s, event& v);
  void wait(stream& s, event& v);
  [[nodiscard]] bool is_done(const event& v) const;
  /// Memory of the host should be pinned; else the driver may hold the caller until it has copied.
  void copy(stream& s, const copy_request& request);
  /// f32, f16 and bf16, accumulated in f32.
  /// @throws config_error For sizes beyond 2³¹ − 1, or if `workspace_bytes` is 0.
  /// @throws resource_error If there is no cuBLAS, with the reason.
  void gemm(stream& s, const gemm_request& request);
  void notify(stream& s, completion& done);

  /// Calls `enqueue(cuda::stream_view)`, which launches kernels or other work of the user's, with
  /// the device current; an error that it leaves behind fails the stream's next notification.
  template <std::invocable<cuda::stream_view> F>
  void launch(stream& s, F&& enqueue);

  /// Records as a graph what `enqueue()` puts on `s` and on streams that it orders behind `s` and
  /// joins again. It must not contain notifications. @throws cuda_error If that cannot be captured.
  template <class F>
  [[nodiscard]] cuda::graph capture(stream& s, F&& enqueue);
  void replay(stream& s, const cuda::graph& g);

  /// Moves the stream to another share of the device: later work runs there, after the work before
  /// it. The host does not wait; the former partition ends with its work. Takes milliseconds.
  /// @throws resource_error As `make_stream`. @throws cuda_error If the driver refuses. The stream
  /// then stays where it is.
  void rebind(stream& s, device_share share);

  /// Memory that is not allocated, in bytes.
  [[nodiscard]] std::size_t free_bytes() const;
  /// False after an error that the device cannot recover from in this process.
  [[nodiscard]] bool is_healthy() const noexcept;
  /// A description of that error, on one line; empty if healthy.
  [[nodiscard]] std::string failure() const;

 private:
  static void fail(stream& s, cudaError_t e, const char* call) noexcept;
  static cuda::stream_view view(stream& s) noexcept;
  [[nodiscard]] int device() const noexcept;

  std::shared_ptr<detail::cuda_device> device_;
};

/// A stream. Movable; destroying it waits for its work and its notifications.
class cuda_executor::stream {
 public:
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;
  ~stream();

  [[nodiscard]] cuda::stream_view view() const noexcept;
  /// Number of multiprocessors that it may run on, after rounding its share.
  [[nodiscard]] unsigned multiprocessors() const noexcept;

 private:
  friend class cuda_executor;
  explicit stream(std::unique_ptr<detail::cuda_stream_state> state);
  std::unique_ptr<detail::cuda_stream_state> state_;
};

/// An event: the latest mark recorded with it, of the executor's pool. Movable.
class cuda_executor::event {
 public:
  event(event&&) noexcept;
  event& operator=(event&&) noexcept;
  ~event();

  [[nodiscard]] cuda::event_view view() const noexcept { return native_.view(); }

 private:
  friend class cuda_executor;
  event(std::shared_ptr<detail::cuda_device> device, cuda::event native) noexcept;
  std::shared_ptr<detail::cuda_device> device_;
  cuda::event native_;
  bool recorded_ = false;  // By this owner: a pooled event remembers marks of former ones.
  cudaError_t refused_ = cudaSuccess;  // Why the latest mark could not be set.
};

template <std::invocable<cuda::stream_view> F>
void cuda_executor::launch(stream& s, F&& enqueue) {
  const cuda::device_scope current{device()};
  (void)cudaGetLastError();  // Clears errors of the user's earlier calls.
  if (current.error() == cudaSuccess) std::forward<F>(enqueue)(view(s));
  const cudaError_t e = current.error() != cudaSuccess ? current.error() : cudaGetLastError();
  if (e != cudaSuccess) fail(s, e, "launch");
}

template <class F>
cuda::graph cuda_executor::capture(stream& s, F&& enqueue) {
  const cuda::device_guard current{device()};
  cuda::graph_capture capture{view(s)};
  std::forward<F>(enqueue)();
  return capture.finish();
}

static_assert(executor<cuda_executor>);
static_assert(!launching_executor<cuda_executor>);  // Its `launch` is for kernels.

}  // namespace cohort::runtime
