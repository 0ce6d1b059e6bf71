// SPDX-License-Identifier: Apache-2.0
/// @file
/// A thread of a sharded scheduler that accepts requests: `shard_thread`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/engine/sharded/controls.hpp>
#include <cohort/engine/sharded/cpu.hpp>
#include <cohort/engine/sharded/inlet.hpp>
#include <cohort/engine/sharded/model_routes.hpp>
#include <cohort/engine/sharded/parker.hpp>
#include <cohort/engine/sharded/shard_desk.hpp>
#include <cohort/engine/wake_histogram.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::engine {

/// A request, or the cancellation of one, on its way to its shard.
struct shard_message {
  request* about = nullptr;
  model_id model;            // The request may be gone when its cancellation is read.
  std::uint32_t cancel = 0;  // Number of the cancellation, or 0.

  [[nodiscard]] bool is_cancel() const noexcept { return cancel > 0; }
};

/// The parts that a model thread of a sharded scheduler uses. All must outlive it.
template <class Desk, class Clock>
struct shard_parts {
  Desk& desk;
  const Clock& time;
  deferred::exchange& between;
  model_routes& routes;
  parker& rank;
};

/// One model thread of `basic_sharded_scheduler`: accepts requests of its models, and passes on
/// those of models that have moved. Thread safety: `post`, `wake`, `give_back` and
/// `remove_model_later` from any thread; the rest, except those for `start`'s own thread, from one.
template <class Desk, class Clock, class Half>
class shard_thread {
  static constexpr bool keeps_requests = requests_desk<Desk, Half>;
  static_assert(keeps_requests || shard_desk<Desk>);

 public:
  shard_thread(std::uint32_t number, shard_parts<Desk, Clock> parts, Half half,
               std::size_t inlet_size, duration spin)
      : number_{number}, parts_{parts}, half_{std::move(half)}, inlet_{inlet_size}, spin_{spin} {}

  /// Sets the list of shards, by number.
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
  /// Call it when all threads have ended.
  void drop_what_is_left() noexcept {
    now_ = parts_.time.now();
    controls_.take(now_);
    for (shard_message m; inlet_.pop(m);) held_.push_back(m);
    held_.insert(held_.end(), late_.begin(), late_.end());
    for (const shard_message& m : held_) {
      if (!m.is_cancel()) drop(*m.about);
    }
    held_.clear();
    half_.close(*this);
    for (const leave& l : std::exchange(leaving_, {})) {
      if (l.to == nullptr) l.done();
    }
  }

  /// @param wakes If false, a sleeping thread may sleep on until `wake`.
  /// @returns False if there is no room.
  bool post(const shard_message& m, bool wakes = true) noexcept {
    const bool fits = inlet_.push(m);
    if (wakes || !fits) wake();
    return fits;
  }
  /// Like `post` without the limit: for threads that must not wait for room, such as this.
  void post_anyway(const shard_message& m) {
    if (post(m)) return;
    {
      const std::lock_guard lock{returned_mutex_};
      late_.push_back(m);
      has_returned_.store(true);
    }
    wake();
  }
  void wake() noexcept { parker_.unpark(); }
  /// Returns requests whose batch, usually sent by this shard, has ended. Like `post_anyway`.
  void give_back(returned_requests&& back) {
    {
      const std::lock_guard lock{returned_mutex_};
      returned_.push_back(std::move(back));
      has_returned_.store(true);
    }
    wake();
  }

  /// @throws config_error As the half does.
  void add_model(model_id id, const deferred::model_config& config, std::uint32_t sharing) {
    run_on_thread([&](time_point) {
      half_.add_model(id, config, sharing);
      if constexpr (keeps_requests) parts_.desk.on_model(id, half_);
    });
    ++models;
  }
  /// Removes a model and drops its waiting requests. Returns when it is gone.
  void remove_model(model_id id) {
    const auto done = std::make_shared<std::promise<void>>();
    remove_model_later(id, [done] { done->set_value(); });
    done->get_future().get();
  }
  /// Like `remove_model`, but returns at once and calls `done()` on this thread.
  void remove_model_later(model_id id, const std::function<void()>& done) {
    give_up({.id = id, .to = nullptr, .done = done});
    --models;
  }
  /// Moves a model to another shard. Returns when it has arrived.
  void move_model(model_id id, shard_thread& to) {
    // Shared: the thread that sets the promise may still use it when this one continues.
    const auto done = std::make_shared<std::promise<void>>();
    give_up({.id = id, .to = &to, .done = [done] { done->set_value(); }});
    done->get_future().get();
    --models;
    ++to.models;
  }
  /// Calls `look(half)` on the half's thread and waits for it. @throws The exceptions of `look`.
  template <class F>
  void inspect(F&& look) {
    run_on_thread([&](time_point) { look(std::as_const(half_)); });
  }

  /// Number of its models.
  std::atomic<std::uint32_t> models{0};

  // The half's sink.
  void dispatch(deferred::batch&& b) noexcept {
    if constexpr (keeps_requests) {
      parts_.desk.dispatch(std::move(b), half_, now_);
    } else {
      for (request& r : b.requests) parts_.routes.end(r);
      parts_.desk.dispatch(std::move(b));
    }
  }
  void drop(request& r) noexcept {
    parts_.routes.end(r);
    r.state = request_state::idle;
    if constexpr (keeps_requests) {
      parts_.desk.drop(r, half_, now_);
    } else {
      parts_.desk.drop(r);
    }
  }
  void left(model_id id, deferred::model_state&& m) noexcept {
    const auto at = std::ranges::find(leaving_, id, &leave::id);
    COHORT_ASSERT(at != leaving_.end());
    const leave l = std::move(*at);
    leaving_.erase(at);
    if (l.to == nullptr) {
      while (!m.queue.empty()) drop(m.queue.pop());
      return l.done();
    }
    const auto state = std::make_shared<deferred::model_state>(std::move(m));
    l.to->controls_.post(
        [to = l.to, id, state, done = l.done](time_point now) {
          to->half_.put_model(id, std::move(*state), now);
          if constexpr (keeps_requests) to->parts_.desk.on_model(id, to->half_);
          done();
        },
        [to = l.to] { to->wake(); });
  }

 private:
  struct leave {
    model_id id;
    shard_thread* to = nullptr;  // Null: it is removed.
    std::function<void()> done;
  };

  template <class F>
  void run_on_thread(F&& f) {
    controls_.run(std::forward<F>(f), [this] { wake(); });
  }
  void give_up(leave l) {
    controls_.post(
        [this, l = std::move(l)](time_point) {
          leaving_.push_back(l);
          half_.give_up(l.id);
        },
        [this] { wake(); });
  }

  void run() noexcept {
    set_precise_sleep();
    time_point awake_until = distant_past;
    while (!controls_.is_stopped()) {
      now_ = parts_.time.now();
      const time_point now = now_;
      bool any = controls_.take(now);
      any |= read(now);
      any |= take_back(now);
      if (half_.step(now, *this)) {
        any = true;
        parts_.rank.unpark();
      }
      if (any) awake_until = now + spin_;
      // Waits awake for the last moments of a timer, as sleep ends late.
      if (now < awake_until || !held_.empty() || half_.next_wake() - spin_ <= now) {
        relax();
        continue;
      }
      parker_.park_until(half_.next_wake(), spin_, [this] {
        return inlet_.has_any() || parts_.between.has_mail(number_) || has_returned_.load() ||
               controls_.has_any();
      });
    }
  }
  /// Takes the messages that came, up to a limit.
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
    request& r = *m.about;
    if (!m.is_cancel()) {
      if constexpr (keeps_requests) {
        if (const auto why = parts_.desk.refuses(r, half_, now)) {
          parts_.routes.end(r);
          return parts_.desk.refused(r, *why);
        }
      } else {
        if (half_.models().is_full(m.model)) return drop(r);
      }
      return half_.on_arrival(r, now, *this);
    }
    if (parts_.routes.is_lost(r, m.cancel)) return;
    if (half_.on_cancel(r, now, *this)) {
      model_routes::take_back(r);
      parts_.desk.cancelled(r);
    } else if (keeps_requests && r.state == request_state::running) {
      r.cancel_requested = true;
    } else {
      held_.push_back(m);  // It has overtaken its request.
    }
  }
  /// Passes on a message for a model that is elsewhere, on its way, or gone.
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

  /// Handles returned requests. Only on their model's shard, so that no other thread touches them.
  bool take_back(time_point now) noexcept {
    if (!has_returned_.load()) return false;
    {
      const std::lock_guard lock{returned_mutex_};
      returning_.swap(returned_);
      held_.insert(held_.end(), late_.begin(), late_.end());  // Read in the next turn.
      late_.clear();
      has_returned_.store(false);
    }
    for (returned_requests& back : returning_) {
      if (half_.models().is_served(back.model)) {
        end(back, now);
      } else {
        (*all_)[parts_.routes.shard_of(back.model)]->give_back(
            std::move(back));  // Perhaps to this one: the model is on its way here.
      }
    }
    returning_.clear();
    return true;
  }
  void end(returned_requests& back, time_point now) noexcept {
    if constexpr (keeps_requests) {
      while (!back.requests.empty()) {
        request& r = back.requests.front();
        back.requests.pop_front();
        r.state = request_state::idle;
        if (!back.has_run && !r.cancel_requested) {
          half_.models().is_full(r.model) ? drop(r) : wait_again(r, now);
          continue;
        }
        if (parts_.desk.runs_again(r, back.failed, half_, now)) {
          wait_again(r, now);
          continue;
        }
        // A cancellation that was seen is no longer on its way.
        if (r.cancel_requested) {
          model_routes::take_back(r);
        } else {
          parts_.routes.end(r);
        }
        parts_.desk.ended(r, back.failed, now);
      }
    }
  }

  void wait_again(request& r, time_point now) noexcept {
    parts_.desk.waits_again(r);
    half_.on_arrival(r, now, *this);
  }

  std::uint32_t number_;
  shard_parts<Desk, Clock> parts_;
  Half half_;
  inlet<shard_message> inlet_;
  duration spin_;
  parker parker_;
  controls controls_;
  time_point now_{};                 // Of this turn.
  std::vector<shard_message> held_;  // Cannot be handled yet.
  std::mutex returned_mutex_;
  std::vector<returned_requests> returned_;
  std::vector<shard_message> late_;  // There was no room for them.
  std::atomic<bool> has_returned_{false};
  std::vector<returned_requests> returning_;  // This turn's.
  const std::vector<std::unique_ptr<shard_thread>>* all_ = nullptr;
  std::vector<leave> leaving_;
  std::thread thread_;
};

}  // namespace cohort::engine
