// SPDX-License-Identifier: Apache-2.0
/// @file
/// The halves of a sharded scheduler on one thread, in virtual time: a `batch_scheduler`.
#pragma once

#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::test {

/// `Shards` shards and a rank that take turns until none has anything to say: mailboxes without
/// delay. Models go to the shards in turns.
template <std::uint32_t Shards, class Half = deferred::shard_half>
class joined_shards {
 public:
  static constexpr std::uint32_t most_models = 64;

  explicit joined_shards(deferred::network_delays delays = {}) {
    for (std::uint32_t i = 0; i < Shards; ++i) halves_.emplace_back(*between_, i, delays);
    view_.self = halves_.data();
    view_.owner.resize(most_models, none);
  }

  model_id add_model(const deferred::model_config& config) {
    std::uint32_t id = 0;
    while (view_.owner[id] != none) ++id;
    halves_[id % Shards].add_model(model_id{id}, config);
    view_.owner[id] = id % Shards;
    return model_id{id};
  }
  template <deferred::scheduler_sink Sink>
  void remove_model(model_id id, time_point now, Sink& sink) noexcept {
    halves_[view_.owner[id.index()]].give_up(id);
    to_[id.index()] = none;
    turn(now, sink);
  }
  /// Once the rank has agreed, to one of the shards.
  void move_model(model_id id, random_source& random) {
    to_[id.index()] = random.below(Shards);
    halves_[view_.owner[id.index()]].give_up(id);
  }
  device_id add_device(time_point now) { return rank_->add_device(now); }
  void remove_device(device_id d, time_point now) noexcept { rank_->remove_device(d, now); }
  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    rank_->set_in_service(d, is_in_service, now);
  }
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept {
    return rank_->devices().capacity(d);
  }
  void learn(const deferred::learning& how, time_point now) {
    for (auto& h : halves_) h.learn(how, now);
    rank_->set_learning(how.is_on);
  }

  template <deferred::scheduler_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    from_half<Sink> f{*this, now, sink};
    halves_[view_.owner[r.model.index()]].on_arrival(r, now, f);
  }
  template <deferred::scheduler_sink Sink>
  bool on_cancel(request& r, time_point now, Sink& sink) noexcept {
    from_half<Sink> f{*this, now, sink};
    return halves_[view_.owner[r.model.index()]].on_cancel(r, now, f);
  }
  void on_complete(device_entry at, time_point now, bool failed = false) noexcept {
    rank_->on_complete(at, now, failed);
  }
  template <deferred::scheduler_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    turn(now, sink);
  }
  [[nodiscard]] time_point next_wake() const noexcept {
    time_point next = rank_->next_wake();
    for (const auto& h : halves_) next = std::min(next, h.next_wake());
    return next;
  }

  /// The models of all shards.
  struct view {
    [[nodiscard]] bool is_full(model_id id) const noexcept { return of(id).is_full(id); }
    [[nodiscard]] bool is_feasible(model_id id, time_point by, time_point now) const noexcept {
      return of(id).is_feasible(id, by, now);
    }
    [[nodiscard]] duration least_time(model_id id) const noexcept { return of(id).least_time(id); }
    [[nodiscard]] const auto& of(model_id id) const noexcept {
      return self[owner[id.index()]].models();
    }
    const Half* self = nullptr;
    std::vector<std::uint32_t> owner{};
  };
  [[nodiscard]] const view& models() const noexcept { return view_; }
  [[nodiscard]] const deferred::rank_half& devices() const noexcept { return *rank_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  template <class Sink>
  struct from_half {
    joined_shards& self;
    time_point now;
    Sink& sink;

    void dispatch(deferred::batch&& b) noexcept { sink.dispatch(std::move(b)); }
    void drop(request& r) noexcept { sink.drop(r); }
    void left(model_id id, deferred::model_state&& m) noexcept {
      const std::uint32_t to = self.to_[id.index()];
      self.view_.owner[id.index()] = to;
      self.goes_on_ = true;
      if (to != none) return self.halves_[to].put_model(id, std::move(m), now);
      while (!m.queue.empty()) {
        request& r = m.queue.pop();
        r.state = request_state::idle;
        sink.drop(r);
      }
    }
  };
  template <class Sink>
  void turn(time_point now, Sink& sink) noexcept {
    from_half<Sink> f{*this, now, sink};
    do {
      goes_on_ = false;
      for (auto& h : halves_) goes_on_ |= h.step(now, f);
      goes_on_ |= rank_->step(now);
    } while (goes_on_);
  }

  std::unique_ptr<deferred::exchange> between_ =
      std::make_unique<deferred::exchange>(Shards, most_models);
  std::vector<Half> halves_;
  std::unique_ptr<deferred::rank_half> rank_ = std::make_unique<deferred::rank_half>(*between_);
  view view_;
  bool goes_on_ = false;
  std::vector<std::uint32_t> to_ = std::vector<std::uint32_t>(most_models, none);
};

}  // namespace cohort::test
