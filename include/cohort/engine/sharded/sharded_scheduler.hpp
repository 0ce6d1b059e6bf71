// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling on several threads: `basic_sharded_scheduler`.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/learning.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>
#include <cohort/deferred/view.hpp>
#include <cohort/engine/sharded/controls.hpp>
#include <cohort/engine/sharded/inlet.hpp>
#include <cohort/engine/sharded/model_routes.hpp>
#include <cohort/engine/sharded/parker.hpp>
#include <cohort/engine/sharded/shard_thread.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Limits and habits of a sharded scheduler.
struct sharded_options {
  std::uint32_t shards = 1;           ///< Model threads; at least 1.
  std::uint32_t max_models = 256;     ///< Ids that may ever be given; at least 1.
  std::uint32_t inlet = 1 << 16;      ///< Requests on their way to one shard; at least 2.
  std::uint32_t device_capacity = 1;  ///< Batches that a device may run at one time; at least 1.
  /// A thread that finds nothing to do looks again for so long before it sleeps; at least 0.
  duration spin = std::chrono::microseconds{20};
  /// The rank thread is bound to this core and model threads to those after it; below 0: to none.
  int first_core = -1;
  deferred::network_delays delays{};
  deferred::learning learning{};

  /// @throws config_error If a field is outside its range.
  void validate() const {
    expects(shards > 0, "sharded_options: shards must be at least 1");
    expects(max_models > 0, "sharded_options: max_models must be at least 1");
    expects(inlet > 1, "sharded_options: inlet must be at least 2");
    expects(device_capacity > 0, "sharded_options: device_capacity must be at least 1");
    expects(spin >= duration{0}, "sharded_options: spin must be at least 0");
    learning.validate();
  }
};

/// Decides when each batch starts, who is in it and on which device, on threads of its own: some
/// that take requests and build batches, each for some of the models, and one that matches them
/// with devices. They decide what `deferred::basic_scheduler` decides, by the same code, and talk
/// only through an `exchange`: no lock, no allocation and, while there is work, no system call lies
/// between a request and its batch. Models can be moved from thread to thread while they are
/// served.
/// Each accepted request is told to the backend exactly once: in a batch, dropped, or cancelled.
/// Ids of removed models are not given again.
/// Thread safety: `submit`, `cancel`, `complete` from any thread; the rest from any thread but
/// those that call the backend; one such call at a time, others wait.
///
/// @tparam Backend A `shard_backend`.
template <class Backend, clock Clock = steady_clock,
          deferred::window_policy Window = deferred::frontrun,
          deferred::gather_policy Gather = deferred::drop_head,
          deferred::target_policy Target = deferred::staggered_target,
          deferred::priority_policy Priority = deferred::earliest_latest>
class basic_sharded_scheduler {
  // Asserted, not required: a backend may hold a pointer to its scheduler.
  static_assert(shard_backend<Backend>);
  using half = deferred::basic_shard_half<Window, Gather, Target, Priority>;
  using shard = shard_thread<Backend, Clock, half>;

 public:
  /// Starts the threads. @param backend Outlives this.
  /// @throws config_error If an option is outside its range. @throws std::system_error If there is
  /// no thread to be had.
  explicit basic_sharded_scheduler(Backend& backend, const sharded_options& options = {},
                                   Clock time = {}, const Window& window = {},
                                   const Gather& gather = {}, const Target& target = {},
                                   const Priority& priority = {})
      : options_{checked(options)},
        clock_{time},
        between_{options.shards, options.max_models},
        routes_{options.max_models},
        rank_{between_},
        ends_{2 * std::size_t{most_devices} * options.device_capacity} {
    rank_.set_learning(options.learning.is_on);
    for (std::uint32_t i = 0; i < options.shards; ++i) {
      shards_.push_back(std::make_unique<shard>(
          i, shard_parts<Backend, Clock>{backend, clock_, between_, routes_, rank_parker_},
          half{between_, i, options.delays, window, gather, target, priority}, options.inlet,
          options.spin));
      shards_.back()->learn(options.learning, clock_.now());
    }
    for (auto& s : shards_) s->know(shards_);
    try {
      start();
    } catch (...) {
      stop();  // Of the threads that there are.
      throw;
    }
  }
  basic_sharded_scheduler(const basic_sharded_scheduler&) = delete;
  ~basic_sharded_scheduler() { stop(); }

  /// Ends the threads; requests that wait are dropped, batches at devices go on. No `submit` or
  /// `cancel` may be under way, nor come after it.
  void stop() {
    const std::lock_guard lock{control_};
    if (std::exchange(is_stopped_, true)) return;
    for (auto& s : shards_) s->stop();
    rank_controls_.stop();
    rank_parker_.unpark();
    if (rank_thread_.joinable()) rank_thread_.join();
    for (auto& s : shards_) s->drop_what_is_left();
  }

  /// Adds a model to the shard with the fewest. @throws config_error If a batch of one cannot meet
  /// the SLO, above `max_models`, or after `stop`.
  model_id add_model(const deferred::model_config& config) {
    const std::lock_guard lock{control_};
    expects(!is_stopped_, "add_model: the scheduler has been stopped");
    expects(next_model_ < options_.max_models, "add_model: more models than max_models");
    const model_id id{next_model_};
    const auto to = std::ranges::min_element(shards_, {}, [](const auto& s) { return s->models; });
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
  /// Moves a model to another shard, with all that waits for it and all that is known of it.
  /// Returns when it has arrived. @throws config_error If there is no such shard.
  void move_model(model_id id, std::uint32_t to) {
    const std::lock_guard lock{control_};
    expects(to < shards_.size(), "move_model: shard must be below shards");
    if (!is_served(id)) return;
    const std::uint32_t from = routes_.shard_of(id);
    if (from == to) return;
    routes_.move(id, to);
    shards_[from]->move_model(id, *shards_[to]);
  }
  /// Which shard has a model that is served.
  [[nodiscard]] std::uint32_t shard_of(model_id id) const noexcept { return routes_.shard_of(id); }

  /// Adds an idle device. @throws config_error If there are 4096 that are present or at work.
  device_id add_device() {
    device_id id{};
    on_rank([&](time_point now) {
      expects(rank_.in_use() < most_devices, "add_device: more than 4096 devices");
      id = rank_.add_device(now, options_.device_capacity);
    });
    return id;
  }
  /// Gives a device no more work. What it has still ends.
  void remove_device(device_id d) {
    on_rank([&](time_point now) {
      if (rank_.devices().has_device(d)) rank_.remove_device(d, now);
    });
  }
  /// Gives a device no work for a while, or again.
  void set_in_service(device_id d, bool is_in_service) {
    on_rank([&](time_point now) {
      if (rank_.devices().has_device(d)) rank_.set_in_service(d, is_in_service, now);
    });
  }

  /// Takes a request whose `model`, `arrival` and `deadline` are set, and which stays until the
  /// backend hears of it. Dropped if as many wait as the model's `queue_capacity`. Does not wait.
  /// @returns False if it is not taken: no such model, or the shard does not keep up.
  [[nodiscard]] bool submit(request& r) noexcept {
    if (!routes_.is_open(r.model)) return false;
    model_routes::begin(r);
    if (shards_[routes_.shard_of(r.model)]->post({&r, r.model})) return true;
    model_routes::take_back(r);
    return false;
  }
  /// Cancels a request that was taken. If it is still waiting when its shard sees that, the backend
  /// hears `cancelled`; otherwise nothing happens. May come as late as its outcome, while its
  /// memory is there. @returns False if the shard does not keep up: then nothing happens.
  bool cancel(request& r) noexcept {
    const model_id of = r.model;
    const std::uint32_t number = routes_.begin_cancel(r);
    if (number == 0) return true;
    if (shards_[routes_.shard_of(of)]->post({&r, of, number})) return true;
    routes_.take_back_cancel(r, number);
    return false;
  }
  /// The oldest batch of the entry ended; `failed` if without results. Once for each batch.
  void complete(device_entry at, bool failed = false) noexcept {
    while (!ends_.push({at, failed})) {  // More ends than batches.
      if (rank_controls_.is_stopped()) return;
      std::this_thread::yield();
    }
    rank_parker_.unpark();
  }

 private:
  static constexpr std::uint32_t most_devices = 4096;
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
  template <class F>
  void on_rank(F&& f) {
    const std::lock_guard lock{control_};
    if (is_stopped_) return f(clock_.now());
    rank_controls_.run(std::forward<F>(f), [this] { rank_parker_.unpark(); });
  }

  void run_rank() {
    set_precise_sleep();
    time_point awake_until = distant_past;
    while (!rank_controls_.is_stopped()) {
      const time_point now = clock_.now();
      bool any = rank_controls_.take(now);
      for (end e; ends_.pop(e); any = true) rank_.on_complete(e.at, now, e.failed);
      if (rank_.step(now)) {
        any = true;
        for (auto& s : shards_) s->wake();
      }
      if (any) awake_until = now + options_.spin;
      if (now < awake_until || rank_.next_wake() - options_.spin <= now) {
        relax();
        continue;
      }
      rank_parker_.park_until(rank_.next_wake(), options_.spin, [this] {
        return ends_.has_any() || between_.has_news() || rank_controls_.has_any();
      });
    }
  }

  sharded_options options_;
  Clock clock_;
  deferred::exchange between_;
  model_routes routes_;
  parker rank_parker_;
  controls rank_controls_;
  deferred::rank_half rank_;
  inlet<end> ends_;
  std::vector<std::unique_ptr<shard>> shards_;
  std::thread rank_thread_;
  std::mutex control_;
  std::uint32_t next_model_ = 0;
  bool is_stopped_ = false;
};

/// Symphony's policies on the machine's clock.
template <class Backend>
using sharded_scheduler = basic_sharded_scheduler<Backend>;

}  // namespace cohort::engine
