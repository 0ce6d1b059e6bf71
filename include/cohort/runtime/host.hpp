// SPDX-License-Identifier: Apache-2.0
/// @file
/// The executor of the host: streams are threads. Its creator provides matrix products.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/runtime/executor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace cohort::runtime {

/// How a host executor computes matrix products: with `blas_products()` of the component
/// `cohort::blas`, with a user's function, or not at all.
struct host_products {
  /// Computes one f32 product. Called on the threads of streams, by several at once. An exception
  /// fails the stream. Dimensions are below 2³¹, m and n at least 1; with beta 0, C may hold
  /// anything. If null, `gemm` is refused.
  void (*multiply)(const gemm_request& g) = nullptr;
  /// Names the implementation and the settings that affect its speed, on one line; for
  /// `describe_host`.
  std::string (*describe)() = nullptr;
};

/// Options of a host executor.
struct host_options {
  std::size_t pool_bytes = std::size_t{256} << 20U;  ///< Memory for buffers; at least 64.
  std::uint32_t queue_depth = 1024;  ///< Pieces of work a stream can hold; at least 2.
  host_products products{};          ///< Default: no products, only launched work.
};

namespace detail {
class host_stream_state;
class host_mark;
class host_pool;
class host_cores;

/// One piece of work in a stream's ring.
struct host_task {
  static constexpr std::size_t capacity = 240;
  /// Runs the work, once, and destroys it. May throw: that fails the stream.
  void (*run)(std::byte* storage, host_stream_state& stream) = nullptr;
  alignas(std::max_align_t) std::byte storage[capacity];
};
}  // namespace detail

/// An executor whose device is the machine it runs on. A stream is a thread that takes work from a
/// bounded ring; a full ring makes the caller wait, so `queue_depth` must cover what is enqueued
/// ahead. An event holds a stream by blocking its thread, without spinning. Matrix products are
/// f32, on the stream's thread. After a piece of work has thrown, the stream goes on; the next
/// `notify` reports the failure, with the text of the first exception, and clears it. A stream with
/// a share of the machine runs on ceil(share · cores) cores (`stream::cores()`): those used by the
/// fewest of its streams. Thread safety: as the `executor` concept says. Models:
/// `launching_executor`.
class host_executor {
 public:
  /// Whether results are computed, not only timed.
  static constexpr bool computes = true;
  /// Whether launched work runs on a thread of its stream alone.
  static constexpr bool streams_are_threads = true;
  /// Whether the host may use its buffers like any memory.
  static constexpr bool buffers_are_host_memory = true;

  class event;
  class stream;
  class buffer;

  /// @throws config_error If an option is outside its range.
  /// @throws resource_error If the machine has no memory for the pool.
  explicit host_executor(host_options options = {});
  ~host_executor();
  host_executor(const host_executor&) = delete;
  host_executor& operator=(const host_executor&) = delete;

  [[nodiscard]] stream make_stream(device_share share = {});
  [[nodiscard]] event make_event();
  /// Takes memory from the pool, aligned to 64 bytes.
  /// @throws config_error If `bytes` is 0.
  /// @throws resource_error If the pool has no room; names what was asked and left.
  [[nodiscard]] buffer allocate(std::size_t bytes);

  void record(stream& s, event& v);
  void wait(stream& s, event& v);
  [[nodiscard]] bool is_done(const event& v) const;
  void copy(stream& s, const copy_request& request);
  /// @throws config_error If the executor was made without products, the type is not f32, or a
  /// dimension is 2³¹ or more.
  void gemm(stream& s, const gemm_request& request);
  void notify(stream& s, completion& done);

  /// Runs `work()` on the stream's thread, in order, as `launching_executor` says, like a kernel
  /// launch on a GPU. `work` must fit `detail::host_task::capacity`, 240 bytes.
  template <class F>
  void launch(stream& s, F work);

  /// Memory that is not allocated, in bytes.
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  std::shared_ptr<detail::host_pool> pool_;
  std::shared_ptr<detail::host_cores> cores_;
  host_options options_;
};

/// A stream. Movable; destroying it waits for its work.
class host_executor::stream {
 public:
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;
  ~stream();

  /// The cores it may run on.
  [[nodiscard]] unsigned cores() const noexcept;
  /// The kernel's id of its thread; 0 before the thread has begun. Call from any thread.
  [[nodiscard]] int thread_id() const noexcept;

 private:
  friend class host_executor;
  explicit stream(std::unique_ptr<detail::host_stream_state> state);
  /// Waits for room and gives the slot to fill; `publish` makes it visible to the thread.
  detail::host_task& acquire();
  void publish();

  std::unique_ptr<detail::host_stream_state> state_;
};

/// An event: the latest mark recorded with it. Movable.
class host_executor::event {
 public:
  event() noexcept;
  event(event&&) noexcept;
  event& operator=(event&&) noexcept;
  ~event();

 private:
  friend class host_executor;
  std::shared_ptr<detail::host_mark> mark_;
};

/// Memory from the pool. Movable; its destructor gives the memory back.
class host_executor::buffer {
 public:
  buffer() noexcept = default;
  buffer(buffer&& other) noexcept;
  buffer& operator=(buffer&& other) noexcept;
  ~buffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  friend class host_executor;
  std::shared_ptr<detail::host_pool> pool_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class F>
void host_executor::launch(stream& s, F work) {
  static_assert(sizeof(F) <= detail::host_task::capacity && alignof(F) <= alignof(std::max_align_t),
                "host_executor: the work is too large for a slot of the stream's ring; capture "
                "pointers instead of values");
  static_assert(std::is_nothrow_move_constructible_v<F>,
                "host_executor: the work must be movable without throwing");
  detail::host_task& task = s.acquire();
  ::new (static_cast<void*>(task.storage)) F(std::move(work));
  task.run = [](std::byte* storage, detail::host_stream_state&) {
    F* f = std::launder(reinterpret_cast<F*>(storage));
    struct guard {
      F* f;
      ~guard() { f->~F(); }
    } destroy{f};
    (*f)();
  };
  s.publish();
}

static_assert(launching_executor<host_executor>);

/// Describes on one line what affects the speed of work here, as far as known: the processor, the
/// cores that this program may use and the implementation of matrix products, if any (for a BLAS
/// its version, kernels and threads per product).
[[nodiscard]] std::string describe_host(const host_products& products = {});

}  // namespace cohort::runtime
