// SPDX-License-Identifier: Apache-2.0
/// @file
/// An executor that takes the time its profile gives, on the clock of its driver.
#pragma once

#include <cohort/core/device_course.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::runtime {

/// Speeds of an emulated device. 0 means that the work takes no time.
struct emulated_options {
  double copy_bytes_per_second = 0;                  ///< At least 0.
  double gemm_flops_per_second = 0;                  ///< Speed of the whole device; at least 0.
  std::size_t pool_bytes = std::size_t{256} << 20U;  ///< Maximum memory in buffers; at least 1.
};

/// An executor without a device. Work takes the time given by `busy` or by the speeds in the
/// options. Copies are really made, at the end of their time, in ordinary memory. Products take
/// time and compute nothing (`computes` is false). A value driven by its caller: everything happens
/// in `advance(now)`, which must be called at `next_event()`. Enqueued work starts at the time of
/// the last `advance`, or when the work it waits for ends. So it runs on virtual time in tests and
/// in simulations, and on the machine's clock under a server. A partition of share p runs products
/// 1 / p times as long; `busy` is taken as given, for profiles are measured by partition. A stream
/// may have a `device_course`, with instants counted from the first `advance`: it is then slow,
/// hangs and fails accordingly, and the next notification reports the failure. Launched host work
/// takes no time; call `busy` before it to give it some. Thread safety: none. Allocates no memory
/// for work once the streams' queues have grown, except for launched work. Models:
/// `driven_executor`, `launching_executor`.
class emulated_executor {
  struct mark {
    bool done = false;
  };
  struct lane;

 public:
  static constexpr bool computes = false;

  /// Must not outlive its executor. Work that has not ended by then never ends: it is never
  /// notified, and streams that wait for it hang.
  class stream {
   public:
    stream(stream&& other) noexcept
        : owner_{std::exchange(other.owner_, nullptr)}, index_{other.index_} {}
    stream& operator=(stream&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~stream() {
      if (owner_ != nullptr) owner_->release(index_);
    }

   private:
    friend class emulated_executor;
    stream(emulated_executor& owner, std::uint32_t index) noexcept
        : owner_{&owner}, index_{index} {}
    emulated_executor* owner_;
    std::uint32_t index_;
  };

  class event {
    friend class emulated_executor;
    std::shared_ptr<mark> mark_;
  };

  class buffer {
   public:
    buffer() noexcept = default;
    buffer(buffer&& other) noexcept
        : owner_{std::exchange(other.owner_, nullptr)}, bytes_{std::move(other.bytes_)} {}
    buffer& operator=(buffer&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~buffer() {
      if (owner_ != nullptr) owner_->used_bytes_ -= bytes_.size();
    }
    [[nodiscard]] std::byte* data() noexcept { return bytes_.data(); }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

   private:
    friend class emulated_executor;
    emulated_executor* owner_ = nullptr;
    std::vector<std::byte> bytes_;
  };

  /// @throws config_error If an option is outside its range.
  explicit emulated_executor(emulated_options o = {}) : options_{o} {
    expects(o.copy_bytes_per_second >= 0 && o.gemm_flops_per_second >= 0,
            "emulated_options: speeds must be at least 0");
    expects(o.pool_bytes > 0, "emulated_options: pool_bytes must be at least 1");
  }
  emulated_executor(const emulated_executor&) = delete;
  emulated_executor& operator=(const emulated_executor&) = delete;

  /// @param course Faults of the stream's device.
  [[nodiscard]] stream make_stream(device_share share = {}, device_course course = {}) {
    std::uint32_t index = 0;
    while (index < lanes_.size() && lanes_[index].in_use) ++index;
    if (index == lanes_.size()) {
      lanes_.emplace_back();
      due_.resize(lanes_.size());
    }
    lanes_[index].in_use = true;
    lanes_[index].share = share;
    lanes_[index].course = std::move(course);
    return stream{*this, index};
  }
  [[nodiscard]] event make_event() { return event{}; }
  /// @throws config_error If `bytes` is 0.
  /// @throws resource_error If the pool has too little memory left.
  [[nodiscard]] buffer allocate(std::size_t bytes) {
    expects(bytes > 0, "emulated_executor: a buffer must have at least 1 byte");
    if (bytes > options_.pool_bytes - used_bytes_) {
      throw resource_error{"emulated_executor: the buffer does not fit what is left of pool_bytes"};
    }
    buffer b;
    b.bytes_.resize(bytes);
    b.owner_ = this;
    used_bytes_ += bytes;
    return b;
  }

  /// Occupies the stream for `time`, at least 0, like a kernel on a GPU.
  void busy(stream& s, duration time) { enqueue(s, {.does = kind::busies, .time = time}); }

  /// Runs `f()` in `advance`, at its place in the stream, and destroys it; takes no time.
  template <class F>
  void launch(stream& s, F f) {
    static_assert(std::is_nothrow_move_constructible_v<F>,
                  "emulated_executor: the work must be movable without throwing");
    enqueue(s, {.does = kind::launches, .run = std::make_unique<launched_as<F>>(std::move(f))});
  }

  void record(stream& s, event& v) {
    v.mark_ = std::make_shared<mark>();
    enqueue(s, {.does = kind::records, .point = v.mark_});
  }
  void wait(stream& s, event& v) {
    if (v.mark_) enqueue(s, {.does = kind::waits, .point = v.mark_});
  }
  [[nodiscard]] bool is_done(const event& v) const { return !v.mark_ || v.mark_->done; }

  void copy(stream& s, const copy_request& c) {
    expects(c.rows <= 1 || (c.destination_pitch >= c.row_bytes && c.source_pitch >= c.row_bytes),
            "copy: each pitch must be at least row_bytes");
    const double bytes = static_cast<double>(c.row_bytes) * static_cast<double>(c.rows);
    enqueue(s, {.does = kind::copies,
                .time = taking(bytes, options_.copy_bytes_per_second),
                .transfer = c});
  }
  void gemm(stream& s, const gemm_request& g) {
    const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                         static_cast<double>(g.k) * static_cast<double>(g.batches);
    const double speed = options_.gemm_flops_per_second * lanes_[s.index_].share.fraction();
    enqueue(s, {.does = kind::busies, .time = taking(flops, speed)});
  }
  void notify(stream& s, completion& done) { enqueue(s, {.does = kind::notifies, .done = &done}); }

  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_event() const noexcept { return due_.next(); }
  /// The time of the last `advance`; within `advance`, the time of the current event.
  [[nodiscard]] time_point now() const noexcept { return now_; }

  /// Lets time pass up to `now`, which must not go back. Everything that ends until then takes
  /// effect, in order of time. Completions are called from here and may enqueue more.
  void advance(time_point now) {
    if (origin_ == distant_past) origin_ = now;
    while (due_.next() <= now) {
      const std::uint32_t i = due_.next_slot();
      now_ = std::max(now_, due_.next());
      due_.disarm(i);
      step(i);
    }
    now_ = std::max(now_, now);
  }

 private:
  enum class kind : std::uint8_t { busies, records, waits, copies, launches, notifies };

  struct launched {
    virtual ~launched() = default;
    virtual void operator()() = 0;
  };
  template <class F>
  struct launched_as final : launched {
    explicit launched_as(F f) noexcept : function{std::move(f)} {}
    void operator()() override { function(); }
    F function;
  };

  struct work {
    kind does{};
    duration time{0};
    std::shared_ptr<mark> point{};
    copy_request transfer{};
    std::unique_ptr<launched> run{};
    completion* done = nullptr;
  };

  /// First in, first out, in memory that grows and is kept.
  class work_ring {
   public:
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] work& front() noexcept { return slots_[first_]; }
    [[nodiscard]] const work& front() const noexcept { return slots_[first_]; }
    void push_back(work w) {
      if (count_ == slots_.size()) {
        std::ranges::rotate(slots_, slots_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
        slots_.resize(std::max<std::size_t>(8, 2 * slots_.size()));
      }
      slots_[(first_ + count_) % slots_.size()] = std::move(w);
      ++count_;
    }
    void pop_front() noexcept {
      first_ = (first_ + 1) % slots_.size();
      --count_;
    }

   private:
    std::vector<work> slots_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
  };

  struct lane {
    work_ring queue;       // The front runs, or waits for its mark.
    bool started = false;  // The front occupies the lane until it is due.
    bool in_use = false;
    bool failed = false;  // Work since the last `notify` failed.
    std::string error;    // The first failure's message, if any.
    device_share share;
    device_course course;
  };

  static duration taking(double amount, double speed) noexcept {
    return speed > 0 ? from_seconds(amount / speed) : duration{0};
  }

  /// When a lane's work that starts now ends.
  [[nodiscard]] time_point end_of(lane& l, duration time) const noexcept {
    if (l.course.is_steady()) return now_ + time;
    const device_course::ending end = l.course.end(time_point{now_ - origin_}, time);
    l.failed |= end.failed;
    return end.at == never ? never : origin_ + end.at.time_since_epoch();
  }

  void enqueue(stream& s, work w) {
    lane& l = lanes_[s.index_];
    l.queue.push_back(std::move(w));
    if (l.queue.size() == 1) due_.arm(s.index_, now_);
  }

  /// Runs the front of a lane as far as time allows.
  void step(std::uint32_t i) {
    while (!lanes_[i].queue.empty()) {
      lane& l = lanes_[i];
      work& front = l.queue.front();
      if (front.does == kind::waits && !front.point->done) return;  // Armed again by the record.
      if (!l.started && front.time > duration{0}) {
        l.started = true;
        due_.arm(i, end_of(l, front.time));
        return;
      }
      l.started = false;
      work ended = std::move(front);
      l.queue.pop_front();
      finish(i, ended);
    }
  }

  void finish(std::uint32_t on, const work& w) {
    if (w.does == kind::copies) {
      for (std::size_t r = 0; r < w.transfer.rows; ++r) {
        std::memcpy(
            static_cast<std::byte*>(w.transfer.destination) + r * w.transfer.destination_pitch,
            static_cast<const std::byte*>(w.transfer.source) + r * w.transfer.source_pitch,
            w.transfer.row_bytes);
      }
    } else if (w.does == kind::records) {
      w.point->done = true;
      for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
        const lane& l = lanes_[i];
        if (!l.queue.empty() && l.queue.front().does == kind::waits &&
            l.queue.front().point == w.point) {
          due_.arm(i, now_);
        }
      }
    } else if (w.does == kind::notifies) {
      // Notified last: the call may enqueue more and so move the lanes.
      const bool failed = std::exchange(lanes_[on].failed, false);
      const std::string error = std::exchange(lanes_[on].error, {});
      w.done->error = error.empty() ? nullptr : error.c_str();
      w.done->invoke(*w.done, failed);
    } else if (w.does == kind::launches) {
      try {
        (*w.run)();
      } catch (const std::exception& e) {
        fail(lanes_[on], e.what());
      } catch (...) {
        fail(lanes_[on], "an exception that is not a std::exception");
      }
    }
  }

  static void fail(lane& l, const char* why) {
    if (!std::exchange(l.failed, true)) l.error = why;  // Keeps the first failure.
  }

  void release(std::uint32_t index) noexcept {
    due_.disarm(index);
    lanes_[index] = lane{};
  }

  emulated_options options_;
  std::vector<lane> lanes_;
  timer_queue due_;  // By lane: when its front ends, or may start.
  time_point now_{};
  time_point origin_ = distant_past;  // The first `advance`.
  std::size_t used_bytes_ = 0;
};

static_assert(driven_executor<emulated_executor>);
static_assert(launching_executor<emulated_executor>);

}  // namespace cohort::runtime
