// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/executor.hpp>
#include <cohort/runtime/cuda/partition.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "poller.hpp"

namespace cohort::runtime {
namespace detail {

/// A stream abandoned by `rebind`, with its partition.
class former_stream {
 public:
  former_stream(std::unique_ptr<cuda::green_context> p, cuda::stream s) noexcept
      : partition{std::move(p)}, native{std::move(s)} {}
  former_stream(former_stream&&) noexcept = default;
  // The stream is destroyed first, also here: without its context it cannot be.
  former_stream& operator=(former_stream&& other) noexcept {
    native = std::move(other.native);
    partition = std::move(other.partition);
    return *this;
  }
  ~former_stream() = default;

  std::unique_ptr<cuda::green_context> partition;
  cuda::stream native;  // After the partition, so destroyed before it.
};

/// Shared by the streams and events of one executor; destroyed with the last of them.
class cuda_device {
 public:
  explicit cuda_device(const cuda_options& o)
      : options{o},
        partitions{cuda::partitioner::make(o.device)},
        events{o.device},
        pool{cuda::device_pool::make(o.device, o.pool_bytes, o.pool_kind)},
        notifications{o.device, o.poll_interval, events, health} {
    events.reserve(64);
  }

  ~cuda_device() {
    const cuda::device_scope current{options.device};
    spare_blas_.clear();
  }
  cuda_device(const cuda_device&) = delete;
  cuda_device& operator=(const cuda_device&) = delete;

  /// An unused handle, or a new one.
  std::unique_ptr<cuda::blas> take_blas() {
    {
      const std::lock_guard lock{mutex_};
      if (!spare_blas_.empty()) {
        auto b = std::move(spare_blas_.back());
        spare_blas_.pop_back();
        return b;
      }
    }
    const cuda::device_guard current{options.device};
    return std::make_unique<cuda::blas>(options.workspace_bytes);
  }
  void give_back(std::unique_ptr<cuda::blas> b) {
    if (b == nullptr) return;
    const std::lock_guard lock{mutex_};
    spare_blas_.push_back(std::move(b));
  }

  /// Destroys former streams without running work, which frees their partitions.
  void sweep() {
    const std::lock_guard lock{mutex_};
    std::erase_if(former_, [](const former_stream& x) { return x.native.view().is_idle(); });
  }
  /// Keeps a former stream; its work may still run.
  void leave(former_stream f) {
    const std::lock_guard lock{mutex_};
    former_.push_back(std::move(f));
  }

  const cuda_options options;
  device_health health;
  std::shared_ptr<cuda::partitioner> partitions;  // Before events, which may use its contexts.
  cuda::event_pool events;
  std::shared_ptr<cuda::device_pool> pool;
  const std::shared_ptr<cuda::pinned_pool> pinned = std::make_shared<cuda::pinned_pool>();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<cuda::blas>> spare_blas_;
  std::vector<former_stream> former_;

 public:
  poller notifications;  // Last, as its thread uses the others.
};

class cuda_stream_state {
 public:
  cuda_stream_state(std::shared_ptr<cuda_device> d, device_share share)
      : device{std::move(d)}, where{start(*device, share, nullptr)} {
    const cuda::device_guard current{device->options.device};
    if (device->options.workspace_bytes > 0 && cuda::why_no_blas().empty()) {
      blas = device->take_blas();
      blas->bind(where.native.view(), where.partition ? multiprocessors() : 0);
    }
    lane.stream = where.native.native();
  }
  ~cuda_stream_state() {
    // Only this stream: by the concept, destroying a stream waits for its work.
    const cudaError_t e = cudaStreamSynchronize(where.native.native());
    if (e != cudaSuccess) device->health.note(e, "cudaStreamSynchronize");
    device->notifications.close(lane);
    if (blas != nullptr) blas->unbind();
    device->give_back(std::move(blas));
  }
  cuda_stream_state(const cuda_stream_state&) = delete;
  cuda_stream_state& operator=(const cuda_stream_state&) = delete;

  /// @param instead_of The partition that the stream leaves, if any.
  static former_stream start(cuda_device& d, device_share share, cuda::green_context* instead_of) {
    const cuda::device_guard current{d.options.device};
    d.sweep();
    if (share == device_share{}) return {nullptr, cuda::stream::make()};
    auto partition = d.partitions->make_partition(share, instead_of);
    try {
      cuda::stream native = partition->make_stream();
      return {std::move(partition), std::move(native)};
    } catch (...) {
      if (instead_of != nullptr) instead_of->reclaim();
      throw;
    }
  }

  [[nodiscard]] unsigned multiprocessors() const {
    if (where.partition) return where.partition->multiprocessors();
    int all = 0;
    (void)cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device->options.device);
    return static_cast<unsigned>(all);
  }
  /// Binds the products to the stream again, or, if refused, destroys them.
  void bind_again() noexcept {
    try {
      blas->bind(where.native.view(), where.partition ? multiprocessors() : 0);
    } catch (const device_error&) {
      blas->unbind();
    }
  }
  /// Notes that work of this stream failed, or could not be enqueued.
  void fail(cudaError_t e, const char* call) noexcept {
    failed = true;
    device->health.note(e, call);
    // Always: otherwise the thread's next call, on any device, would report this error.
    (void)cudaGetLastError();
  }
  void expect(cudaError_t e, const char* call) noexcept {
    if (e != cudaSuccess) fail(e, call);
  }

  std::shared_ptr<cuda_device> device;
  former_stream where;
  std::unique_ptr<cuda::blas> blas;
  notification_lane lane;
  bool failed = false;  // Since the last notification.
};

}  // namespace detail

cuda_executor::cuda_executor(cuda_options o) {
  expects(o.pool_bytes >= cuda::device_pool::alignment,
          "cuda_options: pool_bytes must be at least 256");
  expects(o.poll_interval.count() >= 0, "cuda_options: poll_interval must be at least 0");
  const cuda::inventory found = cuda::find_devices();
  if (found.devices.empty()) throw resource_error{fmt::format("cuda_executor: {}", found.reason)};
  const auto usable = std::ranges::find(found.devices, o.device, &cuda::device_description::index);
  if (usable == found.devices.end()) {
    std::vector<int> indices;
    for (const cuda::device_description& d : found.devices) indices.push_back(d.index);
    throw config_error{fmt::format("cuda_options.device: got {}, expected one of {}", o.device,
                                   fmt::join(indices, ", "))};
  }
  device_ = std::make_shared<detail::cuda_device>(o);
}
cuda_executor::~cuda_executor() = default;

cuda_executor::stream cuda_executor::make_stream(device_share share) {
  return stream{std::make_unique<detail::cuda_stream_state>(device_, share)};
}
cuda_executor::event cuda_executor::make_event() { return event{device_, device_->events.take()}; }

cuda_executor::buffer cuda_executor::allocate(std::size_t bytes) {
  return device_->pool->allocate(bytes);
}
cuda_executor::buffer cuda_executor::allocate(std::size_t bytes, stream& s) {
  return device_->pool->allocate(bytes, view(s));
}
void cuda_executor::retire(buffer b, stream& s) { device_->pool->retire(std::move(b), view(s)); }

cuda::pinned_buffer cuda_executor::allocate_pinned(std::size_t bytes) {
  const cuda::device_guard current{device()};
  return device_->pinned->allocate(bytes);
}

void cuda_executor::record(stream& s, event& v) {
  v.recorded_ = true;
  v.refused_ = cudaSuccess;
  try {
    v.native_.record(view(s));
  } catch (const cuda::cuda_error& e) {
    v.refused_ = e.code();
    s.state_->fail(e.code(), "cudaEventRecord");
  }
}
void cuda_executor::wait(stream& s, event& v) {
  if (!v.recorded_) return;
  // Later work of the stream would overlap unfinished work.
  if (v.refused_ != cudaSuccess) return s.state_->fail(v.refused_, "cudaEventRecord");
  s.state_->expect(cudaStreamWaitEvent(view(s).native(), v.native_.native(), 0),
                   "cudaStreamWaitEvent");
}
bool cuda_executor::is_done(const event& v) const {
  return !v.recorded_ || v.native_.view().is_done();
}

void cuda_executor::copy(stream& s, const copy_request& r) {
  expects(r.rows <= 1 || (r.destination_pitch >= r.row_bytes && r.source_pitch >= r.row_bytes),
          "copy: each pitch must be at least row_bytes");
  if (r.rows == 0 || r.row_bytes == 0) return;
  const bool is_dense =
      r.rows == 1 || (r.destination_pitch == r.row_bytes && r.source_pitch == r.row_bytes);
  if (is_dense) {
    s.state_->expect(cudaMemcpyAsync(r.destination, r.source, r.row_bytes * r.rows,
                                     cudaMemcpyDefault, view(s).native()),
                     "cudaMemcpyAsync");
  } else {
    s.state_->expect(cudaMemcpy2DAsync(r.destination, r.destination_pitch, r.source, r.source_pitch,
                                       r.row_bytes, r.rows, cudaMemcpyDefault, view(s).native()),
                     "cudaMemcpy2DAsync");
  }
}

void cuda_executor::gemm(stream& s, const gemm_request& g) {
  if (s.state_->blas == nullptr) {
    if (!cuda::why_no_blas().empty()) {
      throw resource_error{fmt::format("gemm: {}", cuda::why_no_blas())};
    }
    throw config_error{"gemm: cuda_options has workspace_bytes 0"};
  }
  try {
    const cuda::device_guard current{device()};
    s.state_->blas->multiply(g);
  } catch (const cuda::cuda_error& e) {
    s.state_->fail(e.code(), "gemm");
  }
}

void cuda_executor::notify(stream& s, completion& done) {
  expects(!s.view().is_capturing(), "notify: not while the stream is captured");
  detail::cuda_stream_state& state = *s.state_;
  detail::notification_lane::entry e{.behind = {}, .done = &done, .failed = false};
  try {
    e.behind = device_->events.take();
    e.behind.record(view(s));
  } catch (const cuda::cuda_error& error) {
    state.fail(error.code(), "notify");
    device_->events.give_back(std::exchange(e.behind, {}));
    e.when_idle = true;  // Earlier work may still run: due when the stream is idle.
  }
  e.failed = std::exchange(state.failed, false) || !device_->health.is_good();
  device_->notifications.push(state.lane, std::move(e));
}

void cuda_executor::replay(stream& s, const cuda::graph& g) {
  try {
    g.launch(view(s));
  } catch (const cuda::cuda_error& e) {
    s.state_->fail(e.code(), "replay");
  }
}

void cuda_executor::rebind(stream& s, device_share share) {
  detail::cuda_stream_state& state = *s.state_;
  const cuda::device_guard current{device()};
  detail::former_stream next =
      detail::cuda_stream_state::start(*device_, share, state.where.partition.get());
  try {
    cuda::event here = device_->events.take();
    here.record(view(s));
    cuda::check(cudaStreamWaitEvent(next.native.native(), here.native(), 0), "cudaStreamWaitEvent");
    device_->events.give_back(std::move(here));
    if (state.blas != nullptr) {
      state.blas->bind(next.native.view(), next.partition ? next.partition->multiprocessors() : 0);
    }
  } catch (...) {  // It stays.
    if (state.where.partition) state.where.partition->reclaim();
    if (state.blas != nullptr) state.bind_again();
    throw;
  }
  {
    const std::lock_guard lock{state.lane.stream_mutex};
    std::swap(state.where, next);
    state.lane.stream = state.where.native.native();
  }
  device_->leave(std::move(next));
}

std::size_t cuda_executor::free_bytes() const { return device_->pool->free_bytes(); }
bool cuda_executor::is_healthy() const noexcept { return device_->health.is_good(); }
std::string cuda_executor::failure() const { return device_->health.failure(); }
void cuda_executor::fail(stream& s, cudaError_t e, const char* call) noexcept {
  s.state_->fail(e, call);
}
cuda::stream_view cuda_executor::view(stream& s) noexcept { return s.view(); }
int cuda_executor::device() const noexcept { return device_->options.device; }

cuda_executor::stream::stream(std::unique_ptr<detail::cuda_stream_state> state)
    : state_{std::move(state)} {}
cuda_executor::stream::stream(stream&&) noexcept = default;
cuda_executor::stream& cuda_executor::stream::operator=(stream&&) noexcept = default;
cuda_executor::stream::~stream() = default;
cuda::stream_view cuda_executor::stream::view() const noexcept {
  return state_->where.native.view();
}
unsigned cuda_executor::stream::multiprocessors() const noexcept {
  return state_->multiprocessors();
}

cuda_executor::event::event(std::shared_ptr<detail::cuda_device> device,
                            cuda::event native) noexcept
    : device_{std::move(device)}, native_{std::move(native)} {}
cuda_executor::event::event(event&&) noexcept = default;
cuda_executor::event& cuda_executor::event::operator=(event&& other) noexcept {
  event old{std::move(*this)};
  device_ = std::move(other.device_);
  native_ = std::move(other.native_);
  recorded_ = other.recorded_;
  refused_ = other.refused_;
  return *this;
}
cuda_executor::event::~event() {
  if (device_ != nullptr && native_) device_->events.give_back(std::move(native_));
}

}  // namespace cohort::runtime
