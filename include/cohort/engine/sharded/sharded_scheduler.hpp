// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling on several threads: `basic_sharded_scheduler`.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>
#include <cohort/deferred/view.hpp>
#include <cohort/engine/sharded/controls.hpp>
#include <cohort/engine/sharded/cpu.hpp>
#include <cohort/engine/sharded/inlet.hpp>
#include <cohort/engine/sharded/model_routes.hpp>
#include <cohort/engine/sharded/parker.hpp>
#include <cohort/engine/sharded/shard_desk.hpp>
#include <cohort/engine/sharded/shard_thread.hpp>
#include <cohort/engine/sharded/sharded_options.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A backend with its own work on the rank's thread, such as devices of an engine: `turn(rank,
/// now)`, called in each turn before the rank's own step with the `deferred::rank_half`, returns
/// whether it did anything; `next_event()`, when it must be called next; `has_work()`, whether it
/// must be called at once.
template <class B>
concept rank_companion = requires(B& b, const B& c, deferred::rank_half& rank, time_point now) {
  { b.turn(rank, now) } noexcept -> std::same_as<bool>;
  { c.next_event() } noexcept -> std::same_as<time_point>;
  { b.has_work() } noexcept -> std::same_as<bool>;
};

/// Decides when each batch starts, which requests it contains and on which device it runs, on its
/// own threads: some accept requests and build batches, each for some of the models, and one
/// assigns batches to devices. They decide like `deferred::basic_scheduler`, by the same code, and
/// communicate only through an `exchange`: no lock, no allocation and, while there is work, no
/// system call lies between a request and its batch. Models can be moved between threads while they
/// are served. The backend is told of each accepted request exactly once: in a batch, dropped, or
/// cancelled. Ids of removed models are not reused. Thread safety: `submit`, `cancel`, `complete`
/// from any thread; the rest from any thread except those that call the backend; one such call at a
/// time, others wait.
///
/// @tparam Backend A `shard_desk`, called by all model threads concurrently, but by one at a time
/// for each model; or it has a desk for each, `desk(shard)`. It may be a `rank_companion`.
template <class Backend, clock Clock = steady_clock,
          deferred::window_policy Window = deferred::frontrun,
          deferred::gather_policy Gather = deferred::drop_head,
          deferred::target_policy Target = deferred::staggered_target,
          deferred::priority_policy Priority = deferred::earliest_latest>
class basic_sharded_scheduler {
  using desk = std::remove_reference_t<decltype(desk_of(std::declval<Backend&>(), 0))>;
  static constexpr bool has_companion = rank_companion<Backend>;

 public:
  /// The half in each model thread.
  using half = deferred::basic_shard_half<Window, Gather, Target, Priority>;

  /// Starts the threads. @param backend Must outlive this.
  /// @throws config_error If an option is outside its range. @throws std::system_error If no thread
  /// can be created.
  explicit basic_sharded_scheduler(Backend& backend, const sharded_options& options = {},
                                   Clock time = {}, const Window& window = {},
                                   const Gather& gather = {}, const Target& target = {},
                                   const Priority& priority = {})
      : backend_{backend},
        options_{checked(options)},
        clock_{time},
        between_{options.shards, options.max_models},
        routes_{options.max_models},
        rank_{between_},
        ends_{options.most_batches()} {
    rank_.set_learning(options.learning.is_on);
    for (std::uint32_t i = 0; i < options.shards; ++i) {
      shards_.push_back(std::make_unique<shard_thread<desk, Clock, half>>(
          i, shard_parts<desk, Clock>{desk_of(backend, i), clock_, between_, routes_, rank_parker_},
          half{between_, i, options.delays, window, gather, target, priority}, options.inlet,
          options.spin));
      shards_.back()->learn(options.learning, clock_.now());
    }
    for (auto& s : shards_) s->know(shards_);
    try {
      start();
    } catch (...) {
      stop();  // Stops the threads created so far.
      throw;
    }
  }
  basic_sharded_scheduler(const basic_sharded_scheduler&) = delete;
  ~basic_sharded_scheduler() { stop(); }

  /// Ends the threads; waiting requests are dropped, batches on devices continue. No `submit` or
  /// `cancel` may be in progress or follow.
  void stop() {
    const std::lock_guard lock{control_};
    if (std::exchange(is_stopped_, true)) return;
    for (auto& s : shards_) s->stop();
    rank_controls_.stop();
    rank_parker_.unpark();
    if (rank_thread_.joinable()) rank_thread_.join();
    for (auto& s : shards_) s->drop_what_is_left();
    has_ended_.store(true);
    take_what_is_left();
  }

  /// Adds a model to the shard with the fewest. @throws config_error If a batch of one cannot meet
  /// the SLO, above `max_models`, or after `stop`.
  model_id add_model(const deferred::model_config& config) {
    const std::lock_guard lock{control_};
    expects(!is_stopped_, "add_model: the scheduler has been stopped");
    expects(next_model_ < options_.max_models, "add_model: more models than max_models");
    const model_id id{next_model_};
    const auto to =
        std::ranges::min_element(shards_, {}, [](const auto& s) { return s->models.load(); });
    (*to)->add_model(id, config, options_.device_capacity);
    ++next_model_;
    routes_.open(id, static_cast<std::uint32_t>(to - shards_.begin()));
    return id;
  }
  /// Removes a model: new requests are refused, waiting ones dropped. Returns when it is gone.
  void remove_model(model_id id) {
    const std::lock_guard lock{control_};
    if (!is_served(id)) return;
    routes_.close(id);
    shards_[routes_.shard_of(id)]->remove_model(id);
  }
  /// Like `remove_model`, for a model that is not being moved, but returns at once: calls `done()`
  /// when it is gone, on its shard's thread, or at once if that has ended. Call it on the rank's
  /// thread (`post`).
  void remove_model_later(model_id id, const std::function<void()>& done) {
    if (!routes_.close(id) || has_ended_.load()) return done();
    shards_[routes_.shard_of(id)]->remove_model_later(id, done);
  }
  /// Moves a model to another shard, with its waiting requests and measurements. Returns when it
  /// has arrived. @throws config_error If there is no such shard.
  void move_model(model_id id, std::uint32_t to) {
    const std::lock_guard lock{control_};
    expects(to < shards_.size(), "move_model: shard must be below shards");
    if (!is_served(id)) return;
    const std::uint32_t from = routes_.shard_of(id);
    if (from == to) return;
    routes_.move(id, to);
    shards_[from]->move_model(id, *shards_[to]);
  }
  /// Calls `look(half)` with the half that has a model, on its thread, and waits for it. Not while
  /// the model is moved or removed. @throws The exceptions of `look`.
  template <class F>
  void inspect(model_id id, F&& look) {
    const std::lock_guard lock{control_};
    if (!is_stopped_) shards_[routes_.shard_of(id)]->inspect(std::forward<F>(look));
  }
  /// The shard of a served model.
  [[nodiscard]] std::uint32_t shard_of(model_id id) const noexcept { return routes_.shard_of(id); }

  /// Adds an idle device. @throws config_error If 4096 are present or at work.
  device_id add_device() {
    return add_device([](device_id, deferred::rank_half&, time_point) {});
  }
  /// Like `add_device`, and calls `then(device, rank, now)` on the rank's thread before it gets
  /// work.
  /// @throws The exceptions of `then`, after removing the device.
  template <class F>
  device_id add_device(F&& then) {
    device_id id{};
    run_on_rank([&](deferred::rank_half& rank, time_point now) {
      expects(rank.in_use() < sharded_options::most_devices, "add_device: more than 4096 devices");
      id = rank.add_device(now, options_.device_capacity);
      then(id, rank, now);
    });
    return id;
  }
  /// Gives a device no more work. Its batches still end.
  void remove_device(device_id d) {
    run_on_rank([&](deferred::rank_half& rank, time_point now) {
      if (rank.devices().has_device(d)) rank.remove_device(d, now);
    });
  }
  /// Suspends or resumes work for a device.
  void set_in_service(device_id d, bool is_in_service) {
    run_on_rank([&](deferred::rank_half& rank, time_point now) {
      if (rank.devices().has_device(d)) rank.set_in_service(d, is_in_service, now);
    });
  }

  /// Runs `act(rank, now)` on the rank's thread, or on this one when that has ended, and waits for
  /// it. @throws The exceptions of `act`.
  template <class F>
  void run_on_rank(F&& act) {
    const std::lock_guard lock{control_};
    if (is_stopped_) return run_here(std::forward<F>(act));
    rank_controls_.run([&](time_point now) { act(rank_, now); }, [this] { wake_rank(); });
  }
  /// Like `run_on_rank` without waiting; `act` must not throw. From any thread.
  void post(std::function<void(deferred::rank_half&, time_point)> act) {
    rank_controls_.post([this, act = std::move(act)](time_point now) { act(rank_, now); },
                        [this] { wake_rank(); });
    if (has_ended_.load()) take_what_is_left();
  }
  /// Wakes the rank's thread for work of the companion. From any thread.
  void wake_rank() noexcept { rank_parker_.unpark(); }
  /// Wakes all shards for requests that were submitted without waking them.
  void wake_shards() noexcept {
    for (auto& s : shards_) s->wake();
  }
  /// Returns requests whose batch has ended to the desk of their model's shard, a `requests_desk`.
  /// From any thread; their model stays meanwhile.
  void give_back(returned_requests&& back) {
    const std::uint32_t where = routes_.shard_of(back.model);
    shards_[where]->give_back(std::move(back));
  }

  /// Submits a request with `model`, `arrival` and `deadline` set, which must exist until the
  /// backend is told of it. It is dropped if as many wait as the model's `queue_capacity`. Does not
  /// block.
  /// @param wakes If false, its shard may sleep on until `wake_shards`.
  /// @returns False if it is not accepted: no such model, or the shard does not keep up.
  [[nodiscard]] bool submit(request& r, bool wakes = true) noexcept {
    if (!routes_.is_open(r.model)) return false;
    model_routes::begin(r);
    if (shards_[routes_.shard_of(r.model)]->post({&r, r.model}, wakes)) return true;
    model_routes::take_back(r);
    return false;
  }
  /// Cancels an accepted request. If it is still waiting when its shard handles this, the backend's
  /// `cancelled` is called; otherwise nothing happens. May race with its outcome as long as its
  /// memory exists and it is not submitted again before this returns. Does not block.
  void cancel(request& r) noexcept {
    const std::uint32_t number = routes_.begin_cancel(r);
    if (number == 0) return;
    const model_id of = r.model;
    shards_[routes_.shard_of(of)]->post_anyway({&r, of, number});
  }
  /// Reports the end of the entry's oldest batch, without results if `failed`. Once for each batch.
  void complete(device_entry at, bool failed = false) noexcept {
    while (!ends_.push({at, failed})) {  // More ends than batches.
      if (rank_controls_.is_stopped()) return;
      std::this_thread::yield();
    }
    rank_parker_.unpark();
  }

 private:
  struct end {
    device_entry at;
    bool failed = false;
  };

  void start() {
    const int first = options_.first_core;
    rank_thread_ = std::thread{[this] { run_rank(); }};
    bind_to_core(rank_thread_, first);
    for (std::uint32_t i = 0; i < shards_.size(); ++i) {
      shards_[i]->start(first < 0 ? first : first + 1 + static_cast<int>(i));
    }
  }
  static sharded_options checked(const sharded_options& o) {
    o.validate();
    return o;
  }
  [[nodiscard]] bool is_served(model_id id) const noexcept {
    return !is_stopped_ && id.value() < next_model_ && routes_.is_open(id);
  }
  /// Runs an action in place of the rank's thread, which has ended.
  template <class F>
  void run_here(F&& act) {
    struct flag {
      explicit flag(std::atomic_flag& f) : is_set{f} {
        while (is_set.test_and_set()) std::this_thread::yield();
      }
      ~flag() { is_set.clear(); }
      std::atomic_flag& is_set;
    };
    {
      const flag ours{stands_in_};
      act(rank_, clock_.now());
    }
    take_what_is_left();
  }
  /// Runs posted actions in place of the thread. If another thread holds the flag, it will check
  /// again after releasing it.
  void take_what_is_left() {
    while (rank_controls_.has_posted() && !stands_in_.test_and_set()) {
      rank_controls_.take(clock_.now());
      stands_in_.clear();
    }
  }

  void run_rank() {
    set_precise_sleep();
    time_point awake_until = distant_past;
    while (!rank_controls_.is_stopped()) {
      const time_point now = clock_.now();
      bool any = rank_controls_.take(now);
      for (end e; ends_.pop(e); any = true) rank_.on_complete(e.at, now, e.failed);
      if constexpr (has_companion) any |= backend_.turn(rank_, now);
      if (rank_.step(now)) {
        any = true;
        for (auto& s : shards_) s->wake();
      }
      if (any) awake_until = now + options_.spin;
      const time_point next = next_wake();
      if (now < awake_until || next - options_.spin <= now) {
        relax();
        continue;
      }
      rank_parker_.park_until(next, options_.spin, [this] {
        if constexpr (has_companion) {
          if (backend_.has_work()) return true;
        }
        return ends_.has_any() || between_.has_news() || rank_controls_.has_any();
      });
    }
  }
  [[nodiscard]] time_point next_wake() const noexcept {
    if constexpr (has_companion) {
      return std::min(rank_.next_wake(), std::as_const(backend_).next_event());
    } else {
      return rank_.next_wake();
    }
  }

  Backend& backend_;
  sharded_options options_;
  Clock clock_;
  deferred::exchange between_;
  model_routes routes_;
  parker rank_parker_;
  controls rank_controls_;
  deferred::rank_half rank_;
  inlet<end> ends_;
  std::vector<std::unique_ptr<shard_thread<desk, Clock, half>>> shards_;
  std::thread rank_thread_;
  std::mutex control_;
  std::uint32_t next_model_ = 0;
  bool is_stopped_ = false;
  std::atomic<bool> has_ended_{false};             // Posters then run actions themselves.
  std::atomic_flag stands_in_ = ATOMIC_FLAG_INIT;  // A poster is doing so.
};

/// Symphony's policies on the machine's clock.
template <class Backend>
using sharded_scheduler = basic_sharded_scheduler<Backend>;

}  // namespace cohort::engine
