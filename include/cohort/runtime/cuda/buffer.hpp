// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for CUDA: a pool that is allocated once, buffers from it, and pinned host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cohort/runtime/cuda/event.hpp>
#include <cohort/runtime/cuda/stream.hpp>
#include <cohort/runtime/detail/block_pool.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::runtime::cuda {

/// Where a pool's memory lies.
enum class memory_kind : unsigned char {
  device,   ///< On the GPU; the host cannot read it.
  pinned,   ///< On the host, read and written by the GPU over its bus.
  managed,  ///< Wherever it was used last; the host may touch it while no work does.
};

class device_pool;

/// Memory from a pool. Movable; its destructor gives the memory back at once, so no work that uses
/// it may be outstanding: otherwise pass it to `device_pool::retire`.
class device_buffer {
 public:
  device_buffer() noexcept = default;
  device_buffer(device_buffer&& other) noexcept
      : pool_{std::move(other.pool_)},
        data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        block_{std::exchange(other.block_, 0)} {}
  device_buffer& operator=(device_buffer&& other) noexcept;
  ~device_buffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  friend class device_pool;
  std::shared_ptr<device_pool> pool_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t block_ = 0;  // Bytes taken from the pool: at least size_.
};

/// One allocation, divided into buffers aligned to 256 bytes. Later allocations for the same stream
/// reuse memory retired there at once; allocations for other streams reuse it behind an event. The
/// host never waits. Thread safety: any thread.
class device_pool : public std::enable_shared_from_this<device_pool> {
 public:
  static constexpr std::size_t alignment = 256;

  /// @throws cuda_error If the device lacks the memory; names how much is free.
  [[nodiscard]] static std::shared_ptr<device_pool> make(int device, std::size_t bytes,
                                                         memory_kind kind);
  ~device_pool();
  device_pool(const device_pool&) = delete;
  device_pool& operator=(const device_pool&) = delete;

  /// @throws config_error If `bytes` is 0. @throws resource_error If no block is large enough.
  [[nodiscard]] device_buffer allocate(std::size_t bytes);
  /// For work on `s` alone: may take memory retired on another stream, behind which `s` then waits.
  [[nodiscard]] device_buffer allocate(std::size_t bytes, stream_view s);
  /// Gives the memory back once the work so far on `s` has finished. @throws cuda_error If the
  /// driver refuses to mark that: the memory is then given back after the next buffer retired
  /// there, or with the pool.
  void retire(device_buffer b, stream_view s);

  /// Bytes in no buffer and not retired behind unfinished work.
  [[nodiscard]] std::size_t free_bytes();

 private:
  friend class device_buffer;
  struct retired_block {
    std::size_t at, bytes;
    cudaStream_t stream;
    event behind;  // Empty: not marked yet.
  };
  device_pool(int device, std::byte* memory, std::size_t bytes, memory_kind kind)
      : device_{device}, kind_{kind}, memory_{memory}, blocks_{bytes, alignment} {}
  void give_back(const std::byte* data, std::size_t bytes) noexcept;
  /// Frees retired blocks whose work has finished. Under the lock.
  void sweep();
  /// An event at the end of the stream's work so far. Under the lock.
  event mark(stream_view s);
  device_buffer make_buffer(std::size_t at, std::size_t size, std::size_t block);
  [[noreturn]] void throw_exhausted(std::size_t bytes) const;

  int device_;
  memory_kind kind_;
  std::byte* memory_;
  std::mutex mutex_;
  detail::block_pool blocks_;
  std::vector<retired_block> retired_;
  std::vector<event> spare_;
};

class pinned_pool;

/// Pinned host memory: copies to and from a GPU need no staging buffer. Movable.
class pinned_buffer {
 public:
  pinned_buffer() noexcept = default;
  /// @throws cuda_error If the memory cannot be allocated.
  explicit pinned_buffer(std::size_t bytes);
  pinned_buffer(pinned_buffer&& other) noexcept { swap(other); }
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    pinned_buffer old{std::move(other)};
    swap(old);
    return *this;
  }
  ~pinned_buffer();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  friend class pinned_pool;
  void swap(pinned_buffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  std::shared_ptr<pinned_pool> pool_;  // Empty: the memory is freed.
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// Keeps pinned memory that was given back, for later requests, until the pool ends: the driver may
/// wait for the device when it allocates or frees such memory. Thread safety: any thread.
class pinned_pool : public std::enable_shared_from_this<pinned_pool> {
 public:
  pinned_pool() = default;
  ~pinned_pool();
  pinned_pool(const pinned_pool&) = delete;
  pinned_pool& operator=(const pinned_pool&) = delete;

  /// The smallest kept block that fits, if it is at most twice as large; otherwise new memory.
  /// @throws cuda_error If there is none.
  [[nodiscard]] pinned_buffer allocate(std::size_t bytes);

 private:
  friend class pinned_buffer;
  void give_back(std::byte* data, std::size_t capacity) noexcept;

  std::mutex mutex_;
  std::multimap<std::size_t, std::byte*> spare_;  // By size.
};

}  // namespace cohort::runtime::cuda
