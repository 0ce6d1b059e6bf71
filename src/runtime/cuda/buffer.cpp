// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/buffer.hpp>
#include <cohort/runtime/cuda/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace cohort::runtime::cuda {

device_buffer& device_buffer::operator=(device_buffer&& other) noexcept {
  device_buffer old{std::move(*this)};
  pool_ = std::move(other.pool_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  block_ = std::exchange(other.block_, 0);
  return *this;
}
device_buffer::~device_buffer() {
  if (data_ != nullptr) pool_->give_back(data_, block_);
}

namespace {

/// Allocates managed memory that stays on the device, so that the device does its copies: copies
/// between host memory are made by the caller. Not requested where unsupported.
cudaError_t allocate_managed(void** p, std::size_t bytes) {
  const cudaError_t e = cudaMallocManaged(p, bytes);
  if (e != cudaSuccess) return e;
  int device = 0;
  (void)cudaGetDevice(&device);
#if CUDART_VERSION >= 13000
  (void)cudaMemAdvise(*p, bytes, cudaMemAdviseSetPreferredLocation,
                      cudaMemLocation{cudaMemLocationTypeDevice, device});
#else
  (void)cudaMemAdvise(*p, bytes, cudaMemAdviseSetPreferredLocation, device);
#endif
  (void)cudaGetLastError();
  return cudaSuccess;
}

/// Allocation functions for a kind of memory.
struct allocator {
  const char* call;
  cudaError_t (*allocate)(void**, std::size_t);
  cudaError_t (*free)(void*);
};
allocator allocator_of(memory_kind kind) {
  switch (kind) {
    case memory_kind::device:
      return {"cudaMalloc", [](void** p, std::size_t n) { return cudaMalloc(p, n); }, &cudaFree};
    case memory_kind::pinned:
      return {"cudaMallocHost", [](void** p, std::size_t n) { return cudaMallocHost(p, n); },
              &cudaFreeHost};
    case memory_kind::managed:
      return {"cudaMallocManaged", &allocate_managed, &cudaFree};
  }
  throw config_error{"cuda_options: pool_kind must be device, pinned or managed"};
}

}  // namespace

std::shared_ptr<device_pool> device_pool::make(int device, std::size_t bytes, memory_kind kind) {
  const device_guard current{device};
  void* memory = nullptr;
  const allocator a = allocator_of(kind);
  const cudaError_t e = a.allocate(&memory, bytes);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    std::size_t left = 0;
    std::size_t all = 0;
    (void)cudaMemGetInfo(&left, &all);
    throw cuda_error{fmt::format("{}, for pool_bytes {} where {} of {} are free",
                                 describe(e, a.call), bytes, left, all),
                     e, device, std::source_location::current()};
  }
  return std::shared_ptr<device_pool>{
      new device_pool{device, static_cast<std::byte*>(memory), bytes, kind}};
}
device_pool::~device_pool() { (void)allocator_of(kind_).free(memory_); }

device_buffer device_pool::make_buffer(std::size_t at, std::size_t size, std::size_t block) {
  device_buffer b;
  b.pool_ = shared_from_this();
  b.data_ = memory_ + at;
  b.size_ = size;
  b.block_ = block;
  return b;
}

void device_pool::throw_exhausted(std::size_t bytes) const {
  throw resource_error{fmt::format(
      "cuda_executor: a buffer of {} bytes does not fit the pool: its largest free block has {} of "
      "pool_bytes {}",
      bytes, blocks_.largest_free(), blocks_.size())};
}

void device_pool::sweep() {
  std::erase_if(retired_, [this](retired_block& r) {
    if (!r.behind) return false;
    // Errors other than the loss of the device say nothing about the work, which may still run.
    const cudaError_t e = r.behind.view().query();
    if (e != cudaSuccess && !is_sticky(e)) return false;
    blocks_.give_back(r.at, r.bytes);
    spare_.push_back(std::move(r.behind));
    return true;
  });
}

device_buffer device_pool::allocate(std::size_t bytes) {
  expects(bytes > 0, "cuda_executor: a buffer must have at least 1 byte");
  const std::lock_guard lock{mutex_};
  sweep();
  const auto at = blocks_.take(bytes);
  if (!at) throw_exhausted(bytes);
  return make_buffer(*at, bytes, blocks_.round_up(bytes));
}

device_buffer device_pool::allocate(std::size_t bytes, stream_view s) {
  expects(bytes > 0, "cuda_executor: a buffer must have at least 1 byte");
  const std::lock_guard lock{mutex_};
  expects(!s.is_capturing(), "allocate: not while the stream is captured");
  const auto take = [&](auto r) {
    // Also on the stream that retired it, where this is cheap: the handle may be reused from a
    // destroyed stream.
    check(cudaStreamWaitEvent(s.native(), r->behind.native(), 0), "cudaStreamWaitEvent");
    device_buffer b = make_buffer(r->at, bytes, r->bytes);
    spare_.push_back(std::move(r->behind));
    retired_.erase(r);
    return b;
  };
  // Retired on this stream: its later work comes after the last use.
  const auto fits = [&](const retired_block& r) { return r.behind && r.bytes >= bytes; };
  const auto own = std::ranges::find_if(
      retired_, [&](const retired_block& r) { return r.stream == s.native() && fits(r); });
  if (own != retired_.end() && own->bytes <= 2 * blocks_.round_up(bytes)) return take(own);
  sweep();
  if (const auto at = blocks_.take(bytes)) {
    return make_buffer(*at, bytes, blocks_.round_up(bytes));
  }
  const auto any = std::ranges::find_if(retired_, fits);
  if (any == retired_.end()) throw_exhausted(bytes);
  return take(any);
}

void device_pool::retire(device_buffer b, stream_view s) {
  if (b.data_ == nullptr) return;
  expects(!s.is_capturing(), "retire: not while the stream is captured");
  const std::lock_guard lock{mutex_};
  // Its work may be running: from here on the buffer no longer returns it itself.
  const auto at = static_cast<std::size_t>(std::exchange(b.data_, nullptr) - memory_);
  retired_.push_back({at, b.block_, s.native(), {}});
  // Also those that could not be marked before.
  for (retired_block& r : retired_) {
    if (!r.behind && r.stream == s.native()) r.behind = mark(s);
  }
}

event device_pool::mark(stream_view s) {
  event e;
  if (spare_.empty()) {
    const device_guard current{device_};
    e = event::make();
  } else {
    e = std::move(spare_.back());
    spare_.pop_back();
  }
  e.record(s);
  return e;
}

void device_pool::give_back(const std::byte* data, std::size_t bytes) noexcept {
  const std::lock_guard lock{mutex_};
  blocks_.give_back(static_cast<std::size_t>(data - memory_), bytes);
}

std::size_t device_pool::free_bytes() {
  const std::lock_guard lock{mutex_};
  sweep();
  return blocks_.free_bytes();
}

pinned_buffer::pinned_buffer(std::size_t bytes) : size_{bytes}, capacity_{bytes} {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  data_ = static_cast<std::byte*>(memory);
}
pinned_buffer::~pinned_buffer() {
  if (pool_ != nullptr) {
    pool_->give_back(data_, capacity_);
  } else if (data_ != nullptr) {
    (void)cudaFreeHost(data_);
  }
}

pinned_pool::~pinned_pool() {
  for (const auto& [size, data] : spare_) (void)cudaFreeHost(data);
}
pinned_buffer pinned_pool::allocate(std::size_t bytes) {
  pinned_buffer b;
  {
    const std::lock_guard lock{mutex_};
    if (const auto kept = spare_.lower_bound(bytes);
        kept != spare_.end() && kept->first / 2 <= bytes) {
      b.capacity_ = kept->first;
      b.data_ = kept->second;
      spare_.erase(kept);
    }
  }
  if (b.data_ == nullptr) b = pinned_buffer{bytes};
  b.size_ = bytes;
  b.pool_ = shared_from_this();
  return b;
}
void pinned_pool::give_back(std::byte* data, std::size_t capacity) noexcept {
  try {
    const std::lock_guard lock{mutex_};
    spare_.emplace(capacity, data);
  } catch (...) {  // Without memory for the list it is freed.
    (void)cudaFreeHost(data);
  }
}

}  // namespace cohort::runtime::cuda
