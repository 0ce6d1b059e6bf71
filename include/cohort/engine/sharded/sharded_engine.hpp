// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engine on several threads: `basic_sharded_engine`.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/model_lives.hpp>
#include <cohort/engine/request_life.hpp>
#include <cohort/engine/sharded/device_desk.hpp>
#include <cohort/engine/sharded/request_desk.hpp>
#include <cohort/engine/sharded/shard_desk.hpp>
#include <cohort/engine/sharded/sharded_doors.hpp>
#include <cohort/engine/sharded/sharded_options.hpp>
#include <cohort/engine/sharded/sharded_scheduler.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Options of a sharded engine beyond scheduling.
struct sharded_engine_options {
  sharded_options threads{};
  duration response{0};  ///< From the end of a batch until deadlines are judged; ≥ 0.
  health_options health{};
  refusal_options refusals{};

  /// @throws config_error If a field is outside its range.
  void validate() const {
    threads.validate();
    health.validate();
    refusals.validate();
    expects(response >= duration{0}, "sharded_engine: response must be at least 0");
    expects(!health.hands_back, "sharded_engine: hands_back must be off");
  }
};

/// `basic_engine` for more requests than one thread can handle: model threads handle requests from
/// `submit` to their one outcome, each for some of the models; the rank's thread has the devices.
/// So one thread calls the backend, which is written as for `basic_engine`; only its `cancel` is
/// not used: a request cancelled while it runs ends `cancelled` with its batch. Outcomes are
/// delivered on the thread of their model, by its copy of the context. Early refusals use the
/// rank's reports about devices, up to a millisecond old. The destructor drains: every accepted
/// request gets its outcome first. No `submit`, `cancel` or `wake_up` may be in progress then.
/// Thread safety: `submit`, `submit_quietly`, `wake_up`, `cancel`, `complete` and its variants,
/// `post`, `remove_model`, `remove_device`, `drain` and snapshots from any thread; the rest from
/// any thread except the engine's own.
///
/// @tparam Context Copied for each model thread.
template <backend Backend, completion_context Context, clock Clock = steady_clock,
          deferred::window_policy Window = deferred::frontrun,
          deferred::gather_policy Gather = deferred::drop_head,
          deferred::target_policy Target = deferred::staggered_target,
          deferred::priority_policy Priority = deferred::earliest_latest>
class basic_sharded_engine {
  using half = deferred::basic_shard_half<Window, Gather, Target, Priority>;
  using requests = request_desk<half, Context>;

 public:
  /// Starts the threads. Afterwards bind the backend's reports (`backend.bind(engine)`).
  /// @param runner Must outlive the engine.
  /// @throws config_error If an option is outside its range. @throws std::system_error If no thread
  /// can be created.
  explicit basic_sharded_engine(Backend& runner, const Context& context,
                                const sharded_engine_options& o = {}, Clock time = {},
                                const Window& window = {}, const Gather& gather = {},
                                const Target& target = {}, const Priority& priority = {})
      : clock_{time},
        parts_{*this, runner, context, checked(o)},
        scheduler_{parts_, o.threads, time, window, gather, target, priority} {}
  basic_sharded_engine(const basic_sharded_engine&) = delete;
  ~basic_sharded_engine() {
    drain();
    join();
    while (calls_ > 0) std::this_thread::yield();  // A backend may still be reporting an end.
  }

  /// Accepts a request, or returns at once why not; then it is unchanged and the caller's. Does not
  /// block. An accepted request gets exactly one outcome.
  [[nodiscard]] std::optional<refusal> submit(request& r) noexcept { return take(r, true); }
  /// Like `submit`, for several requests at one time: none may run until `wake_up`, which must
  /// follow soon.
  [[nodiscard]] std::optional<refusal> submit_quietly(request& r) noexcept {
    return take(r, false);
  }
  void wake_up() noexcept { scheduler_.wake_shards(); }
  /// Cancels an accepted request: a waiting one ends `cancelled` soon, one in a batch when its
  /// batch does. No effect if it has ended, so this may race with its outcome as long as its memory
  /// exists and it is not submitted again before this returns. If completion and cancellation tie,
  /// completion wins. Does not block.
  void cancel(request& r) noexcept { scheduler_.cancel(r); }

  /// Report the end of a batch, of one request before its batch, and of a probe. For backends.
  void complete(batch_ticket at, bool failed) {
    const in_call here{calls_};
    parts_.devices.complete(at, failed);
    scheduler_.wake_rank();
  }
  void complete_request(batch_ticket at, const request& r, bool failed) {
    const in_call here{calls_};
    parts_.devices.complete_request(at, r, failed);
    scheduler_.wake_rank();
  }
  void complete_probe(device_id d, bool failed) {
    const in_call here{calls_};
    parts_.devices.complete_probe(d, failed);
    scheduler_.wake_rank();
  }
  template <class F>
  void nudge(F&& publish) noexcept {
    const in_call here{calls_};
    parts_.devices.nudge(std::forward<F>(publish));
    scheduler_.wake_rank();
  }

  /// Adds a model while running. @param setup `setup(model_id)` is called on the rank's thread
  /// before the first request: add the model to the backend there.
  /// @throws config_error If a batch of one cannot meet the SLO, above `max_models`, or when the
  /// engine has ended. Exceptions of `setup` pass through; the model is then removed.
  template <class Setup>
  model_id add_model(const model_config& config, Setup setup) {
    config.validate();
    const model_id id = scheduler_.add_model(config.scheduling);
    try {
      duration least_time{0};
      scheduler_.inspect(id, [&](const half& h) { least_time = h.models().least_time(id); });
      run_inside([&] {
        setup(id);
        parts_.doors.open(id, {.capacity = config.scheduling.queue_capacity,
                               .max_request_size = config.max_request_size,
                               .is_repeatable = config.is_repeatable,
                               .least_time = least_time,
                               .longest_run = config.longest_run});
      });
    } catch (...) {
      scheduler_.remove_model(id);
      throw;
    }
    return id;
  }
  /// Removes a model when its accepted requests have ended and devices have released it; then calls
  /// `gone`, if given, on the rank's thread. Its exceptions are counted.
  void remove_model(model_id id, std::function<void()> gone = {}) {
    post([this, id, gone = std::move(gone)] { parts_.begin_removal(id, gone); });
  }
  /// Moves a model to another model thread while it is served. Returns when it has arrived.
  /// @throws config_error If there is no such thread.
  void move_model(model_id id, std::uint32_t to) {
    bool stays = false;
    run_inside([&] {
      stays = parts_.doors.is_accepting(id);
      if (stays) parts_.doors.begin_work(id);
    });
    if (!stays) return;
    try {
      scheduler_.move_model(id, to);
    } catch (...) {
      run_inside([&] { parts_.doors.end_work(id); });
      throw;
    }
    run_inside([&] { parts_.doors.end_work(id); });
  }
  [[nodiscard]] std::uint32_t shard_of(model_id id) const noexcept {
    return scheduler_.shard_of(id);
  }

  /// Adds a device while running. @param setup As for `add_model`, with the device's id.
  /// @throws config_error If there are too many. Exceptions of `setup` pass through.
  template <class Setup>
  device_id add_device(Setup setup) {
    return scheduler_.add_device([&](device_id d, deferred::rank_half& rank, time_point now) {
      parts_.devices.add_device(d, parts_.options.threads.device_capacity);
      rank.send_ahead(queueing_backend<Backend>);
      try {
        setup(d);
      } catch (...) {
        parts_.devices.remove_device(d, rank, now);
        throw;
      }
    });
  }
  /// Gives a device no more work. Its batches still end; requests of a batch that was granted but
  /// not launched wait on.
  void remove_device(device_id d) {
    const in_call here{calls_};
    scheduler_.post([this, d](deferred::rank_half& rank, time_point now) {
      parts_.devices.remove_device(d, rank, now);
    });
  }

  /// Runs `action()` on the rank's thread, or on this one when that has ended, and waits for it:
  /// for calls of the backend that only that thread may make. Its exceptions pass through.
  template <class F>
  void run_inside(F action) {
    scheduler_.run_on_rank([&](deferred::rank_half&, time_point) { action(); });
  }
  /// Like `run_inside` without waiting. The action must not throw.
  void post(std::function<void()> action) {
    const in_call here{calls_};
    scheduler_.post([act = std::move(action)](deferred::rank_half&, time_point) { act(); });
  }

  /// Accepts no more requests; accepted ones continue to their ends.
  void drain() noexcept {
    parts_.doors.drain();
    parts_.notify();
  }
  /// Like `drain`, and waits until the last request ends, at most `limit`, as
  /// `basic_engine::drain_for`.
  drain_report drain_for(duration limit) {
    drain();
    constexpr duration most = std::chrono::hours{24 * 365};  // A clock cannot wait for longer.
    if (parts_.wait_until_empty(std::min(limit, most))) join();
    return {parts_.doors.inside(), parts_.devices.hanging_devices()};
  }
  /// Drains and waits until the last request has ended. This and `drain_for`: one thread at a time.
  void join() {
    parts_.wait_until_empty();
    scheduler_.stop();
    if (std::exchange(is_unbound_, true)) return;
    if constexpr (requires { parts_.runner.unbind(); }) parts_.runner.unbind();
  }

  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return parts_.doors.is_accepting(id);
  }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept {
    return parts_.doors.waiting(id);
  }
  /// How often a `gone` callback threw.
  [[nodiscard]] std::uint64_t failed_callbacks() const noexcept {
    return parts_.failed_callbacks.load();
  }
  [[nodiscard]] bool has_device(model_id) const noexcept { return parts_.devices.has_device(); }

 private:
  /// A call in progress, which others may see the effects of before it has returned.
  class in_call {
   public:
    explicit in_call(std::atomic<int>& calls) noexcept : calls_{calls} { ++calls_; }
    in_call(const in_call&) = delete;
    ~in_call() { --calls_; }

   private:
    std::atomic<int>& calls_;
  };

  /// Everything except threads: the scheduler's backend, and its companion on the rank.
  struct parts {
    parts(basic_sharded_engine& e, Backend& b, const Context& context,
          const sharded_engine_options& o)
        : self{e},
          runner{b},
          options{o},
          doors{o.threads.max_models, [this](model_id id) { emptied(id); }},
          devices{b, doors, o.health},
          gone(o.threads.max_models) {
      const request_rules rules{o.response, o.health.retries, o.refusals};
      for (std::uint32_t i = 0; i < o.threads.shards; ++i) {
        desks.push_back(
            std::make_unique<requests>(doors, context, rules, o.threads.most_batches()));
      }
    }

    [[nodiscard]] requests& desk(std::uint32_t shard) noexcept { return *desks[shard]; }
    [[nodiscard]] bool turn(deferred::rank_half& rank, time_point now) noexcept {
      return devices.turn(
          rank, now,
          [this](deferred::batch& b) {
            return std::ranges::any_of(desks, [&](auto& d) { return d->take_sent(b); });
          },
          [this](returned_requests&& back) { self.scheduler_.give_back(std::move(back)); });
    }
    [[nodiscard]] time_point next_event() const noexcept { return devices.next_event(); }
    [[nodiscard]] bool has_work() noexcept {
      return devices.has_work() ||
             std::ranges::any_of(desks, [](const auto& d) { return d->has_sent(); });
    }

    /// On the rank's thread, so that no probe begins with a model being removed.
    void begin_removal(model_id id, std::function<void()> then) {
      if (!doors.close(id)) return;
      gone[id.index()] = std::move(then);
      let_go(id);
    }
    void emptied(model_id id) {
      // Removals begin on the rank's thread, which exists until shards have ended.
      if (doors.is_removing(id)) self.post([this, id] { let_go(id); });
      notify();
    }
    void let_go(model_id id) {
      if (!doors.take_gone(id)) return;
      ++finishing;
      self.scheduler_.remove_model_later(id, [this, id] { self.post([this, id] { finish(id); }); });
    }
    void finish(model_id id) noexcept {
      if (const auto then = std::exchange(gone[id.index()], {})) {
        try {
          then();
        } catch (...) {  // Callbacks must not end the thread.
          ++failed_callbacks;
        }
      }
      --finishing;
      notify();
    }
    void notify() {
      {
        const std::lock_guard lock{mutex};
      }
      is_emptier.notify_all();
    }
    [[nodiscard]] bool is_empty() const noexcept {
      return doors.is_draining() && doors.inside() == 0 && finishing == 0;
    }
    void wait_until_empty() {
      std::unique_lock lock{mutex};
      is_emptier.wait(lock, [this] { return is_empty(); });
    }
    bool wait_until_empty(duration limit) {
      std::unique_lock lock{mutex};
      return is_emptier.wait_for(lock, limit, [this] { return is_empty(); });
    }

    basic_sharded_engine& self;
    Backend& runner;
    sharded_engine_options options;
    sharded_doors doors;
    device_desk<Backend> devices;
    std::vector<std::unique_ptr<requests>> desks;  // By shard.
    std::vector<std::function<void()>> gone;       // By model; used by the rank's thread.
    std::atomic<std::uint64_t> failed_callbacks{0};
    std::atomic<int> finishing{0};  // Removals that wait for no request.
    std::mutex mutex;
    std::condition_variable is_emptier;
  };

  static sharded_engine_options checked(const sharded_engine_options& o) {
    o.validate();
    return o;
  }
  std::optional<refusal> take(request& r, bool wakes) noexcept {
    if (const auto why = parts_.doors.enter(r, clock_.now())) return why;
    if (scheduler_.submit(r, wakes)) return std::nullopt;
    parts_.doors.leave(r.model, true);
    return refusal::queue_full;  // Its shard does not keep up.
  }

  Clock clock_;
  std::atomic<int> calls_{0};
  parts parts_;
  basic_sharded_scheduler<parts, Clock, Window, Gather, Target, Priority> scheduler_;
  bool is_unbound_ = false;
};

/// Symphony's policies on the machine's clock.
template <class Backend, class Context>
using sharded_engine = basic_sharded_engine<Backend, Context>;

}  // namespace cohort::engine
