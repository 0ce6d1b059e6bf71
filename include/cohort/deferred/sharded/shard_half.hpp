// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model shard that talks to its rank through an `exchange`: `basic_shard_half`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/sharded/exchange.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// Carries out a shard half's decisions: a `scheduler_sink` with `left(model_id, model_state&&)`,
/// which returns a released model to the caller with its waiting requests; no grant for it is
/// pending.
template <class S>
concept shard_half_sink = scheduler_sink<S> && requires(S& s, model_id id, model_state&& m) {
  { s.left(id, std::move(m)) } noexcept;
};

/// The half of a sharded scheduler that sees the requests of some models; see `exchange` for the
/// other. A value except for the exchange: it owns no thread and reads no clock. Its thread
/// delivers arrivals and calls `step` after them, when there is mail, and at `next_wake()`. `step`
/// sends the messages, one for each changed model with its latest state. Batches are sent after the
/// messages about them, so that no device ends a batch unknown to the rank. Arrivals move a
/// window's opening: the rank learns of that `tells_ahead` before the window opens, and at that
/// interval while it is open. So requests that wait for a window cost no message each; a message
/// moves a few cache lines between cores. Cost: that of `basic_model_shard`, O(log models) for an
/// arrival without a message, and a store of 15 words for one with a message. Allocates only in
/// `add_model` and `put_model`. Thread safety: none.
template <window_policy Window = frontrun, gather_policy Gather = drop_head,
          target_policy Target = staggered_target, priority_policy Priority = earliest_latest>
class basic_shard_half {
 public:
  /// How long before a window opens the rank learns of it: time to wake up.
  static constexpr duration tells_ahead = std::chrono::microseconds{200};

  /// @param between Must outlive this. @param number The shard's number in it.
  explicit basic_shard_half(exchange& between, std::uint32_t number, network_delays delays = {},
                            Window window = {}, Gather gather = {}, Target target = {},
                            Priority priority = {})
      : between_{between},
        number_{number},
        shard_{delays, std::move(window), std::move(gather), std::move(target),
               std::move(priority)},
        voices_(between.models()),
        untold_{between.models()} {
    changed_.reserve(between.models());
    unsent_.reserve(between.models());
  }

  /// Adds a model under an id that no shard uses. @throws config_error As `basic_model_shard`.
  void add_model(model_id id, const model_config& config, std::uint32_t sharing = 1) {
    expects(id.index() < voices_.size(), "sharded: more models than the exchange has room for");
    shard_.add_model(id, config, sharing);
    begin(id);
  }
  /// Takes over a model that another shard released.
  void put_model(model_id id, model_state&& m, time_point now) {
    shard_.put_model(id, std::move(m), now);
    begin(id);
  }
  /// Asks the rank to release a model of this shard. The shard serves it until the rank has
  /// answered; then the sink's `left` is called. Repeated calls have no effect.
  void give_up(model_id id) noexcept {
    voices_[id.index()].word.is_leaving = true;
    change(id, true);
  }

  template <shard_half_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    joint<Sink> j{*this, sink};
    shard_.on_arrival(r, now, j);
  }
  /// @returns Whether the request was still queued; then it is idle.
  template <shard_half_sink Sink>
  bool on_cancel(request& r, time_point now, Sink& sink) noexcept {
    joint<Sink> j{*this, sink};
    return shard_.on_cancel(r, now, j);
  }
  void on_refused(const request& r, time_point now) noexcept { shard_.on_refused(r, now); }
  /// When a device should be free, by the rank's last report, about a millisecond old at most.
  [[nodiscard]] time_point next_free(model_id /*m*/) const noexcept { return news_.next_free; }

  /// Sets how to learn latencies. @throws config_error If a field is outside its range.
  void learn(const learning& how, time_point now) { shard_.learn(how, now); }

  /// Reads the mail, does everything due, and sends the rank what has changed.
  /// @returns Whether a message was sent to the rank.
  template <shard_half_sink Sink>
  bool step(time_point now, Sink& sink) noexcept {
    joint<Sink> j{*this, sink};
    if (const std::uint64_t v = between_.news().version(); v != heard_) {
      heard_ = v;
      news_ = between_.news().load();
      if (shard_.learns() && news_.wake_margin >= duration{0}) {
        shard_.set_wake_margin(news_.wake_margin);
      }
    }
    for (batch_time t; between_.take_measured(number_, t);) shard_.on_measured(t, now);
    for (rank_mail mail; between_.take_mail(number_, mail);) {
      if (mail.is_grant) {
        voices_[mail.offer.model.index()].word.answer =
            grant_answer{.number = mail.number, .exec_at = {}};
        shard_.on_grant(mail.offer, std::max(now, mail.at), j);
      } else {
        leave(mail.offer.model, j, sink);
      }
    }
    shard_.advance(now, j);
    for (std::uint32_t i; (i = untold_.pop_due(now)) != timer_queue::none;) say(model_id{i}, now);
    return tell(now, sink);
  }
  /// Shuts down: drops the waiting requests and removes all models.
  template <shard_half_sink Sink>
  void close(Sink& sink) noexcept {
    joint<Sink> j{*this, sink};
    for (std::uint32_t i = 0; i < voices_.size(); ++i) {
      if (shard_.is_served(model_id{i})) shard_.remove_model(model_id{i}, j);
    }
  }
  /// When `step` must be called next, or `never`. Mail also calls for it.
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(shard_.next_wake(), untold_.next());
  }

  /// Read only.
  [[nodiscard]] const auto& models() const noexcept { return shard_; }

 private:
  /// A model's pending message.
  struct voice {
    model_word word;
    bool is_changed = false;
    bool is_urgent = false;  // More has changed than its window's opening.
    time_point opens;        // The rank's knowledge: when the window opens, or `never`;
    time_point latest;       // when it closes;
    time_point told;         // and when that was sent.
  };

  template <shard_half_sink Sink>
  struct joint {
    basic_shard_half& self;
    Sink& sink;

    [[nodiscard]] pool_view pool(model_id) const noexcept { return self.news_.pool; }
    void candidate_changed(model_id id, const candidate& c) noexcept {
      self.voices_[id.index()].word.best = c;
      self.change(id, c.is_empty());
    }
    void dispatch(batch&& b) noexcept {
      grant_answer& answer = self.voices_[b.model.index()].word.answer;
      answer.size = b.size();
      answer.work = b.work;
      answer.usual = self.shard_.usual(b.model, b.size());
      self.unsent_.push_back(std::move(b));
    }
    void grant_used(model_id id, device_id, time_point exec_at, duration expected) noexcept {
      grant_answer& answer = self.voices_[id.index()].word.answer;
      answer.exec_at = exec_at;
      answer.expected = expected;
      self.change(id, true);
    }
    void grant_returned(model_id id, device_id) noexcept { self.change(id, true); }
    void drop(request& r) noexcept { sink.drop(r); }
  };

  void begin(model_id id) noexcept {
    voices_[id.index()].word = model_word{.best = {}, .shard = number_, .tenure = ++tenures_};
    change(id, true);
  }
  void change(model_id id, bool is_urgent) noexcept {
    voice& v = voices_[id.index()];
    v.is_urgent |= is_urgent;
    if (std::exchange(v.is_changed, true)) return;
    changed_.push_back(id);
  }
  template <class Joint, class Sink>
  void leave(model_id id, Joint& j, Sink& sink) noexcept {
    model_state m = shard_.take_model(id, j);
    // From here on another shard sends messages about it.
    if (voices_[id.index()].is_changed) std::erase(changed_, id);
    voices_[id.index()] = {};
    untold_.disarm(id.index());
    sink.left(id, std::move(m));
  }

  /// When the rank must learn of the change.
  [[nodiscard]] static time_point due(const voice& v, time_point now) noexcept {
    const time_point opens = v.word.best.send_at();
    // The rank forgets the model at the end of the window that it knows.
    if (v.is_urgent || opens > v.opens || v.word.best.latest > v.latest) return now;
    if (v.opens <= now) return v.told + tells_ahead;  // The rank knows that the window is open.
    return opens - tells_ahead;
  }
  void say(model_id id, time_point now) noexcept {
    voice& v = voices_[id.index()];
    model_word word = v.word;
    if (word.is_leaving) word.best = {};
    v.is_urgent = false;
    v.opens = word.best.is_empty() ? never : word.best.send_at();
    v.latest = word.best.is_empty() ? never : word.best.latest;
    v.told = now;
    between_.say(id, word);
    has_said_ = true;
  }
  template <class Sink>
  bool tell(time_point now, Sink& sink) noexcept {
    for (const model_id id : changed_) {
      voice& v = voices_[id.index()];
      v.is_changed = false;
      if (const time_point at = due(v, now); at > now) {
        untold_.arm(id.index(), at);
      } else {
        untold_.disarm(id.index());
        say(id, now);
      }
    }
    changed_.clear();
    for (batch& b : unsent_) sink.dispatch(std::move(b));
    unsent_.clear();
    return std::exchange(has_said_, false);
  }

  exchange& between_;
  std::uint32_t number_;
  basic_model_shard<Window, Gather, Target, Priority> shard_;
  std::vector<voice> voices_;      // By model.
  std::vector<model_id> changed_;  // Since the last step.
  timer_queue untold_;             // When earlier changes must be sent.
  std::vector<batch> unsent_;
  std::uint32_t tenures_ = 0;
  bool has_said_ = false;
  pool_news news_{};
  std::uint64_t heard_ = 0;
};

/// Symphony's policies.
using shard_half = basic_shard_half<>;

}  // namespace cohort::deferred
