// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/detail/block_pool.hpp>
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::runtime {
namespace detail {

/// One recorded point of a stream.
class host_mark {
 public:
  /// Resets it. Only when nothing waits for it.
  void reset() {
    const std::lock_guard lock{mutex_};
    done_ = false;
  }
  void set() {
    {
      const std::lock_guard lock{mutex_};
      done_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return done_; });
  }
  bool is_done() {
    const std::lock_guard lock{mutex_};
    return done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

/// One block of memory, divided into buffers. Allocated directly from the system: pages appear
/// zeroed on first use, and the block is returned as a whole, whatever else the program has
/// allocated.
class host_pool {
 public:
  explicit host_pool(std::size_t bytes) : blocks_{bytes, alignment} {
    void* const memory =
        mmap(nullptr, blocks_.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw resource_error{fmt::format("host_executor: no memory for pool_bytes {}", bytes)};
    }
    memory_ = static_cast<std::byte*>(memory);
  }
  ~host_pool() { munmap(memory_, blocks_.size()); }
  host_pool(const host_pool&) = delete;
  host_pool& operator=(const host_pool&) = delete;

  std::byte* take(std::size_t bytes) {
    const std::lock_guard lock{mutex_};
    if (const auto at = blocks_.take(bytes)) return memory_ + *at;
    throw resource_error{
        fmt::format("host_executor: a buffer of {} bytes does not fit the pool: its largest free "
                    "block has {} of pool_bytes {}",
                    bytes, blocks_.largest_free(), blocks_.size())};
  }
  void give_back(const std::byte* data, std::size_t bytes) {
    const std::lock_guard lock{mutex_};
    blocks_.give_back(static_cast<std::size_t>(data - memory_), bytes);
  }
  std::size_t free_bytes() {
    const std::lock_guard lock{mutex_};
    return blocks_.free_bytes();
  }

 private:
  static constexpr std::size_t alignment = 64;

  std::mutex mutex_;
  block_pool blocks_;
  std::byte* memory_;
};

/// Assigns cores to the streams of an executor: each stream gets the cores with the fewest other
/// streams, so that shares that fit together do not overlap.
class host_cores {
 public:
  host_cores() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
      for (unsigned c = 0; c < CPU_SETSIZE; ++c) {
        if (CPU_ISSET(c, &allowed)) ids_.push_back(c);
      }
    }
    if (ids_.empty()) ids_.push_back(0);
    streams_.resize(ids_.back() + 1);
  }
  /// Number of cores available to the process.
  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(ids_.size()); }

  std::vector<unsigned> take(unsigned count) {
    const std::lock_guard lock{mutex_};
    std::vector<unsigned> all = ids_;
    std::ranges::sort(all, {}, [this](unsigned c) { return std::pair{streams_[c], c}; });
    all.resize(std::min<std::size_t>(count, all.size()));
    for (const unsigned c : all) ++streams_[c];
    return all;
  }
  void give_back(const std::vector<unsigned>& cores) {
    const std::lock_guard lock{mutex_};
    for (const unsigned c : cores) --streams_[c];
  }

 private:
  std::mutex mutex_;
  std::vector<unsigned> ids_;
  std::vector<unsigned> streams_;  // By core.
};

/// The ring and the thread of a stream. One caller at a time enqueues; the thread runs.
class host_stream_state {
 public:
  host_stream_state(std::uint32_t depth, std::shared_ptr<host_cores> from, unsigned cores)
      : ring_(depth), from_{std::move(from)}, cores_{from_->take(cores)} {
    for (std::uint32_t i = 0; i < depth; ++i) spare_.push_back(std::make_shared<host_mark>());
    thread_ = std::thread{[this] {
      thread_id_.store(::gettid());
      run();
    }};
    pthread_setname_np(thread_.native_handle(), "cohort-stream");  // Shown by debuggers and top.
    bind();
  }
  ~host_stream_state() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    filled_.notify_one();
    thread_.join();
    from_->give_back(cores_);
  }
  host_stream_state(const host_stream_state&) = delete;
  host_stream_state& operator=(const host_stream_state&) = delete;

  host_task& acquire() {
    std::unique_lock lock{mutex_};
    emptied_.wait(lock, [this] { return count_ < ring_.size(); });
    return ring_[(first_ + count_) % ring_.size()];
  }
  void publish() {
    {
      const std::lock_guard lock{mutex_};
      ++count_;
    }
    filled_.notify_one();
  }

  /// An unused mark, or a new one if all are in use. Callers hold the stream.
  std::shared_ptr<host_mark> fresh_mark() {
    for (std::size_t i = 0; i < spare_.size(); ++i) {
      next_spare_ = (next_spare_ + 1) % spare_.size();
      if (spare_[next_spare_].use_count() == 1) {
        spare_[next_spare_]->reset();
        return spare_[next_spare_];
      }
    }
    spare_.push_back(std::make_shared<host_mark>());
    return spare_.back();
  }

  [[nodiscard]] unsigned cores() const { return static_cast<unsigned>(cores_.size()); }
  [[nodiscard]] int thread_id() const noexcept { return thread_id_.load(); }
  /// Completes with whether earlier work failed, and why.
  void finish(completion& c) noexcept {
    const bool failed = std::exchange(failed_, false);
    c.error = failed && !error_.empty() ? error_.c_str() : nullptr;
    c.invoke(c, failed);
  }

 private:
  void bind() {
    if (cores_.size() >= from_->count()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const unsigned c : cores_) CPU_SET(c, &set);
    // A container may forbid this; the share is then not enforced.
    pthread_setaffinity_np(thread_.native_handle(), sizeof(set), &set);
  }

  void fail(const char* why) noexcept {
    if (std::exchange(failed_, true)) return;  // The first error is the cause.
    try {
      error_ = why;
    } catch (const std::bad_alloc&) {
      error_.clear();
    }
  }

  void run() {
    for (;;) {
      host_task* task = nullptr;
      {
        std::unique_lock lock{mutex_};
        filled_.wait(lock, [this] { return count_ > 0 || stopping_; });
        if (count_ == 0) return;
        task = &ring_[first_];
      }
      try {
        task->run(task->storage, *this);
      } catch (const std::exception& e) {
        fail(e.what());
      } catch (...) {
        fail("an exception that is not a std::exception");
      }
      {
        const std::lock_guard lock{mutex_};
        first_ = (first_ + 1) % ring_.size();
        --count_;
      }
      emptied_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable emptied_;
  std::vector<host_task> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;  // Includes the running task: its slot is not reused before.
  bool stopping_ = false;
  bool failed_ = false;  // Only used by the stream's thread.
  std::string error_;    // Only used by the stream's thread.
  std::shared_ptr<host_cores> from_;
  std::vector<unsigned> cores_;
  std::vector<std::shared_ptr<host_mark>> spare_;
  std::size_t next_spare_ = 0;
  std::atomic<int> thread_id_{0};  // The kernel's; 0: not started.
  std::thread thread_;
};

}  // namespace detail

namespace {

void check_range(std::size_t value, const char* what) {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  if (value <= most) return;
  throw config_error{
      fmt::format("gemm: {} is {}, but the host takes at most {}", what, value, most)};
}

}  // namespace

host_executor::host_executor(host_options options) : options_{options} {
  expects(options.pool_bytes >= 64, "host_options: pool_bytes must be at least 64");
  expects(options.queue_depth >= 2, "host_options: queue_depth must be at least 2");
  cores_ = std::make_shared<detail::host_cores>();
  pool_ = std::make_shared<detail::host_pool>(options.pool_bytes);
}
host_executor::~host_executor() = default;

host_executor::stream host_executor::make_stream(device_share share) {
  const unsigned all = cores_->count();
  const unsigned cores = std::max(1U, static_cast<unsigned>(std::ceil(share.fraction() * all)));
  return stream{std::make_unique<detail::host_stream_state>(options_.queue_depth, cores_, cores)};
}
host_executor::event host_executor::make_event() { return event{}; }

host_executor::buffer host_executor::allocate(std::size_t bytes) {
  expects(bytes > 0, "host_executor: a buffer must have at least 1 byte");
  buffer b;
  b.data_ = pool_->take(bytes);
  b.size_ = bytes;
  b.pool_ = pool_;
  return b;
}

void host_executor::record(stream& s, event& v) {
  v.mark_.reset();  // The stream may use it again.
  v.mark_ = s.state_->fresh_mark();
  launch(s, [mark = v.mark_]() mutable { mark->set(); });
}
void host_executor::wait(stream& s, event& v) {
  if (!v.mark_) return;
  launch(s, [mark = v.mark_] { mark->wait(); });
}
bool host_executor::is_done(const event& v) const { return !v.mark_ || v.mark_->is_done(); }

void host_executor::copy(stream& s, const copy_request& r) {
  expects(r.rows <= 1 || (r.destination_pitch >= r.row_bytes && r.source_pitch >= r.row_bytes),
          "copy: each pitch must be at least row_bytes");
  launch(s, [r] {
    auto* to = static_cast<std::byte*>(r.destination);
    const auto* from = static_cast<const std::byte*>(r.source);
    for (std::size_t i = 0; i < r.rows; ++i) {
      std::memcpy(to + i * r.destination_pitch, from + i * r.source_pitch, r.row_bytes);
    }
  });
}

void host_executor::gemm(stream& s, const gemm_request& g) {
  expects(options_.products.multiply != nullptr,
          "gemm: this host_executor has no matrix products: give it host_options::products, for "
          "instance runtime::blas_products() of the component cohort::blas");
  expects(g.type == data_type::f32, "gemm: the host computes in f32 only");
  check_range(g.m, "m");
  check_range(g.n, "n");
  check_range(g.k, "k");
  check_range(g.lda, "lda");
  check_range(g.ldb, "ldb");
  check_range(g.ldc, "ldc");
  if (g.m == 0 || g.n == 0) return;
  launch(s, [g, multiply = options_.products.multiply] { multiply(g); });
}

void host_executor::notify(stream& s, completion& done) {
  detail::host_task& task = s.acquire();
  ::new (static_cast<void*>(task.storage)) completion*(&done);
  task.run = [](std::byte* storage, detail::host_stream_state& state) {
    completion* c = *std::launder(reinterpret_cast<completion**>(storage));
    state.finish(*c);
  };
  s.publish();
}

std::size_t host_executor::free_bytes() const { return pool_->free_bytes(); }

host_executor::stream::stream(std::unique_ptr<detail::host_stream_state> state)
    : state_{std::move(state)} {}
host_executor::stream::stream(stream&&) noexcept = default;
host_executor::stream& host_executor::stream::operator=(stream&&) noexcept = default;
host_executor::stream::~stream() = default;
unsigned host_executor::stream::cores() const noexcept { return state_->cores(); }
int host_executor::stream::thread_id() const noexcept { return state_->thread_id(); }
detail::host_task& host_executor::stream::acquire() { return state_->acquire(); }
void host_executor::stream::publish() { state_->publish(); }

host_executor::event::event() noexcept = default;
host_executor::event::event(event&&) noexcept = default;
host_executor::event& host_executor::event::operator=(event&&) noexcept = default;
host_executor::event::~event() = default;

host_executor::buffer::buffer(buffer&& other) noexcept
    : pool_{std::move(other.pool_)},
      data_{std::exchange(other.data_, nullptr)},
      size_{std::exchange(other.size_, 0)} {}
host_executor::buffer& host_executor::buffer::operator=(buffer&& other) noexcept {
  buffer old{std::move(*this)};
  pool_ = std::move(other.pool_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}
host_executor::buffer::~buffer() {
  if (data_ != nullptr) pool_->give_back(data_, size_);
}

}  // namespace cohort::runtime
