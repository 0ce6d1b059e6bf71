// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA events as values, and a pool of them.
#pragma once

#include <cuda_runtime_api.h>

#include <cohort/core/time.hpp>
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/stream.hpp>

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::runtime::cuda {

/// A non-owning reference to an event.
class event_view {
 public:
  constexpr event_view(cudaEvent_t e) noexcept : native_{e} {}  // NOLINT: implicit on purpose.
  event_view(int) = delete;
  event_view(std::nullptr_t) = delete;

  [[nodiscard]] constexpr cudaEvent_t native() const noexcept { return native_; }
  /// Whether the work marked by the latest record has finished. The loss of the device counts as
  /// finished, and so does a record in a capture.
  [[nodiscard]] bool is_done() const noexcept {
    const cudaError_t e = query();
    return e == cudaSuccess || e == cudaErrorCapturedEvent || is_sticky(e);
  }
  /// `cudaSuccess`, `cudaErrorNotReady`, or an error, which is not remembered for the thread.
  [[nodiscard]] cudaError_t query() const noexcept {
    const cudaError_t e = cudaEventQuery(native_);
    if (e != cudaSuccess) (void)cudaGetLastError();
    return e;
  }

 private:
  cudaEvent_t native_;
};

/// An event. Movable. Without timing unless asked: it is then cheaper to record and to wait for.
class event {
 public:
  enum class timing : bool { no, yes };

  /// Empty; only to be assigned to.
  event() noexcept = default;
  /// A new event of the current device. @throws cuda_error If it cannot be made.
  [[nodiscard]] static event make(timing t = timing::no);
  event(event&& other) noexcept
      : native_{std::exchange(other.native_, nullptr)}, timing_{other.timing_} {}
  event& operator=(event&& other) noexcept {
    event old{std::move(*this)};
    native_ = std::exchange(other.native_, nullptr);
    timing_ = other.timing_;
    return *this;
  }
  ~event();

  [[nodiscard]] event_view view() const noexcept { return native_; }
  [[nodiscard]] cudaEvent_t native() const noexcept { return native_; }
  [[nodiscard]] explicit operator bool() const noexcept { return native_ != nullptr; }

  /// Marks the work so far on `s`. CUDA's headers ask for an event of the stream's context, which
  /// for a partition's stream is not the device's; where a driver insists, the event is replaced by
  /// a new one of that context, and views of the old one become invalid. @throws cuda_error
  void record(stream_view s);
  /// Time between two recorded events that have finished, both made with timing; resolution about
  /// half a microsecond. @throws cuda_error If either has not finished or has no timing.
  [[nodiscard]] static duration between(event_view begin, event_view end);

 private:
  cudaEvent_t native_ = nullptr;
  timing timing_ = timing::no;
};

/// Events without timing of one device, made once and used again. Thread safety: any thread.
class event_pool {
 public:
  explicit event_pool(int device) noexcept : device_{device} {}

  /// An event, possibly recorded before. @throws cuda_error If a new one cannot be made.
  [[nodiscard]] event take();
  void give_back(event e) noexcept;
  /// Makes events so that at least `count` can be taken without making more.
  void reserve(std::size_t count);

 private:
  int device_;
  std::mutex mutex_;
  std::vector<event> spare_;
};

}  // namespace cohort::runtime::cuda
