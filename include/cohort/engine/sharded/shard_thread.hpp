// SPDX-License-Identifier: Apache-2.0
/// @file
/// A thread of a sharded scheduler that takes requests: `shard_thread`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/learning.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/deferred/sink.hpp>
#include <cohort/engine/sharded/controls.hpp>
#include <cohort/engine/sharded/inlet.hpp>
#include <cohort/engine/sharded/model_routes.hpp>
#include <cohort/engine/sharded/parker.hpp>
#include <cohort/engine/wake_histogram.hpp>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::engine {

namespace requirement {
template <class B>
concept backend_hears_of_cancels = requires(B& b, request& r) {
  { b.cancelled(r) }
  noexcept;
};
}  // namespace requirement

/// Carries out what a sharded scheduler decides: a `deferred::scheduler_sink`, and
/// `cancelled(request&)`: the request is idle and the caller's again. Called by several threads at
/// one time, for one model by one at a time. Must not throw, nor call what waits.
template <class B>
concept shard_backend = deferred::scheduler_sink<B> && requirement::backend_hears_of_cancels<B>;

/// For a thread that looks again and again.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
/// Where threads can be bound, and if `core` is not below 0.
inline void bind_to_core([[maybe_unused]] std::thread& t, [[maybe_unused]] int core) noexcept {
#ifdef __linux__
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(t.native_handle(), sizeof(set), &set);
#endif
}

/// What a request is to its shard, or its cancellation.
struct shard_message {
  request* about = nullptr;
  model_id model;            // The request may be gone when its cancellation is read.
  std::uint32_t cancel = 0;  // Its number, if it is one.

  [[nodiscard]] bool is_cancel() const noexcept { return cancel > 0; }
};

/// What the threads of a sharded scheduler share. All outlive them.
template <class Backend, class Clock>
struct shard_parts {
  Backend& backend;
  const Clock& time;
  deferred::exchange& between;
  model_routes& routes;
  parker& rank;
};

/// One model thread of `basic_sharded_scheduler`: takes requests of its models, and passes those of
/// models that have moved on to where they are. Thread safety: `post` and `wake` from any thread;
/// the rest, but for `start`'s own, from one.
template <class Backend, class Clock, class Half>
class shard_thread {
 public:
  shard_thread(std::uint32_t number, shard_parts<Backend, Clock> parts, Half half,
               std::size_t inlet_size, duration spin)
      : number_{number}, parts_{parts}, half_{std::move(half)}, inlet_{inlet_size}, spin_{spin} {}

  /// The shards, by number.
  void know(const std::vector<std::unique_ptr<shard_thread>>& all) noexcept { all_ = &all; }
  void learn(const deferred::learning& how, time_point now) { half_.learn(how, now); }
  void start(int core) {
    thread_ = std::thread{[this] { run(); }};
    bind_to_core(thread_, core);
  }
  void stop() {
    controls_.stop();
    wake();
    if (thread_.joinable()) thread_.join();
  }
  /// When all threads have ended.
  void drop_what_is_left() noexcept {
    for (shard_message m; inlet_.pop(m);) held_.push_back(m);
    for (const shard_message& m : held_) {
      if (!m.is_cancel()) drop(*m.about);
    }
    held_.clear();
    half_.close(*this);
  }

  /// @returns False if there is no room.
  bool post(const shard_message& m) noexcept {
    if (!inlet_.push(m)) return false;
    wake();
    return true;
  }
  void wake() noexcept { parker_.unpark(); }

  /// @throws config_error As the half does.
  void add_model(model_id id, const deferred::model_config& config, std::uint32_t sharing) {
    on_thread([&](time_point) { half_.add_model(id, config, sharing); });
    ++models;
  }
  /// Returns when the model is gone.
  void remove_model(model_id id) { give_up(id, nullptr); }
  /// Returns when it has arrived.
  void move_model(model_id id, shard_thread& to) {
    give_up(id, &to);
    ++to.models;
  }

  /// How many it has. Of whoever adds them.
  std::uint32_t models = 0;

  // The half's sink.
  void dispatch(deferred::batch&& b) noexcept {
    for (request& r : b.requests) parts_.routes.end(r);
    parts_.backend.dispatch(std::move(b));
  }
  void drop(request& r) noexcept {
    parts_.routes.end(r);
    r.state = request_state::idle;
    parts_.backend.drop(r);
  }
  void left(model_id id, deferred::model_state&& m) noexcept {
    COHORT_ASSERT(leaving_.done && leaving_.id == id);
    const auto done = std::move(leaving_.done);
    shard_thread* const to = leaving_.to;
    if (to == nullptr) {
      while (!m.queue.empty()) drop(m.queue.pop());
      return done->set_value();
    }
    const auto state = std::make_shared<deferred::model_state>(std::move(m));
    to->controls_.post(
        [to, id, state, done](time_point now) {
          to->half_.put_model(id, std::move(*state), now);
          done->set_value();
        },
        [to] { to->wake(); });
  }

 private:
  struct leave {
    model_id id;
    shard_thread* to = nullptr;  // None: it is removed.
    std::shared_ptr<std::promise<void>> done{};
  };

  template <class F>
  void on_thread(F&& f) {
    controls_.run(std::forward<F>(f), [this] { wake(); });
  }
  void give_up(model_id id, shard_thread* to) {
    const auto done = std::make_shared<std::promise<void>>();
    on_thread([&](time_point) {
      leaving_ = {.id = id, .to = to, .done = done};
      half_.give_up(id);
    });
    done->get_future().get();
    --models;
  }

  void run() noexcept {
    set_precise_sleep();
    time_point awake_until = distant_past;
    while (!controls_.is_stopped()) {
      const time_point now = parts_.time.now();
      bool any = controls_.take(now);
      any |= read(now);
      if (half_.step(now, *this)) {
        any = true;
        parts_.rank.unpark();
      }
      if (any) awake_until = now + spin_;
      // A timer is awaited awake for its last moments: sleep ends late.
      if (now < awake_until || !held_.empty() || half_.next_wake() - spin_ <= now) {
        relax();
        continue;
      }
      parker_.park_until(half_.next_wake(), spin_, [this] {
        return inlet_.has_any() || parts_.between.has_mail(number_) || controls_.has_any();
      });
    }
  }
  /// Takes what came, but not for ever.
  bool read(time_point now) noexcept {
    std::vector<shard_message> again;
    again.swap(held_);
    for (const shard_message& m : again) take(m, now);
    constexpr int most = 256;
    int n = 0;
    for (shard_message m; n < most && inlet_.pop(m); ++n) take(m, now);
    return n > 0;
  }
  void take(const shard_message& m, time_point now) noexcept {
    if (!half_.models().is_served(m.model)) return pass_on(m);
    if (!m.is_cancel()) {
      if (half_.models().is_full(m.model)) return drop(*m.about);
      return half_.on_arrival(*m.about, now, *this);
    }
    if (parts_.routes.is_lost(*m.about, m.cancel)) return;
    if (half_.on_cancel(*m.about, now, *this)) {
      model_routes::take_back(*m.about);
      parts_.backend.cancelled(*m.about);
    } else {
      held_.push_back(m);  // It has overtaken its request.
    }
  }
  /// Of a model that is elsewhere, or on its way, or gone.
  void pass_on(const shard_message& m) noexcept {
    const std::uint32_t where = parts_.routes.shard_of(m.model);
    const bool is_elsewhere = where != number_;
    if (is_elsewhere && (*all_)[where]->post(m)) return;
    if (!is_elsewhere && !parts_.routes.is_open(m.model)) {
      if (!m.is_cancel()) return drop(*m.about);
      if (parts_.routes.is_lost(*m.about, m.cancel)) return;
    }
    held_.push_back(m);
  }

  std::uint32_t number_;
  shard_parts<Backend, Clock> parts_;
  Half half_;
  inlet<shard_message> inlet_;
  duration spin_;
  parker parker_;
  controls controls_;
  std::vector<shard_message> held_;  // Which cannot be seen to yet.
  const std::vector<std::unique_ptr<shard_thread>>* all_ = nullptr;
  leave leaving_;  // One at a time.
  std::thread thread_;
};

}  // namespace cohort::engine
