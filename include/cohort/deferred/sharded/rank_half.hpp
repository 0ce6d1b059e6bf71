// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank that talks to model shards through an `exchange`: `rank_half`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/deferred/wake_lateness.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// The half of a sharded scheduler that sees devices; see `exchange` for the other. A value except
/// for the exchange: it owns no thread and reads no clock. Its thread reports batch ends and calls
/// `step` after them, when shards have news, and at `next_wake()`. Cost: that of `rank` for each
/// model with news. Allocates only in `add_device`. Thread safety: none.
class rank_half {
 public:
  /// Shortest interval between reports of the rank's measurements to the shards.
  static constexpr duration tells_after = std::chrono::milliseconds{1};

  /// @param between Must outlive this.
  explicit rank_half(exchange& between) : between_{between}, models_(between.models()) {
    rank_.reserve_models(between.models());
  }

  /// Adds an idle device; its id is the smallest that is neither present nor at work. Allocates.
  /// O(devices). @param capacity Number of batches it may run at one time; at least 1, and at most
  /// the `sharing` with which the models were added.
  /// @throws config_error If capacity is 0.
  device_id add_device(time_point now, std::uint32_t capacity = 1) {
    expects(capacity > 0, "add_device: capacity must be at least 1");
    std::uint32_t id = 0;
    while (id < lanes_.size() && is_in_use(device_id{id})) ++id;
    if (id == lanes_.size()) lanes_.emplace_back();
    lanes_[id].assign(capacity, {});
    rank_.add_device(device_id{id}, now, capacity);
    times_.add_device(device_id{id}, capacity);
    is_news_ = true;
    return device_id{id};
  }
  /// Gives a device no more work. Its batches still end.
  void remove_device(device_id d, time_point now) noexcept {
    rank_.remove_device(d, now);
    is_news_ = true;
  }
  /// Suspends or resumes work for a present device.
  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    rank_.set_in_service(d, is_in_service, now);
    is_news_ = true;
  }

  /// Like `basic_scheduler::send_ahead`.
  void send_ahead(bool on) noexcept { rank_.send_ahead(on); }

  /// Whether a shard's batch is the next of its entry and may go to its device. For code that
  /// passes batches from shards to devices: batches of two shards may arrive out of order. For each
  /// batch the first `true` counts.
  [[nodiscard]] bool takes(const batch& b, time_point now) noexcept {
    lane& l = lanes_[b.device.index()][b.entry];
    if (l.offered_to == b.model) hear(b.model, now);  // Its message came before the batch.
    // Two batches of one model that moved between them differ in their start.
    const bool is_next = l.passed < l.count && l.batches[l.passed].model == b.model &&
                         l.batches[l.passed].starts == b.exec_at;
    l.passed += is_next;
    return is_next;
  }

  /// Notes that the oldest batch of the entry ended, without results if `failed`.
  void on_complete(device_entry at, time_point now, bool failed = false) noexcept {
    lane& l = lanes_[at.device.index()][at.entry];
    if (l.offered_to) hear(*l.offered_to, now);  // That batch may be the one which ended.
    rank_.on_complete(at, now);
    const batch_time t = times_.on_complete(at, now, failed, l);
    l.batches[0] = l.batches[1];
    --l.count;
    if (l.passed > 0) --l.passed;
    if (t.is_known) between_.send_measured(models_[t.model.index()].shard, t);
    rank_.set_slow(at.device, failed || (learns_ && times_.is_slow(at.device)));
  }

  /// Whether to detect slow devices and allow for late timers.
  void set_learning(bool is_on) noexcept { learns_ = is_on; }

  /// Reads the shards' messages, does everything due, and offers devices. @returns Whether there is
  /// new mail for shards since the last step: a grant, or the release of a model.
  bool step(time_point now) noexcept {
    now_ = now;
    between_.take_news([&](model_id id) { hear(id, now); });
    if (learns_ && lateness_.woke(now)) wake_margin_ = lateness_.margin();
    rank_.advance(now, *this);
    tell(now);
    if (learns_) lateness_.ask(rank_.next_wake());
    return std::exchange(has_sent_, false);
  }
  /// When `step` must be called next, or `never`. News and batch ends also call for it.
  [[nodiscard]] time_point next_wake() const noexcept {
    // Shards must learn that a pool idles, even if nothing happens.
    const bool changes = rank_.pool().idle_fraction < 0.999 && rank_.entries() > 0;
    return changes ? std::min(rank_.next_wake(), told_ + pool_meter::period) : rank_.next_wake();
  }

  /// Number of devices that are present, offered or at work. O(devices).
  [[nodiscard]] std::size_t in_use() const noexcept {
    std::size_t n = 0;
    for (std::uint32_t i = 0; i < lanes_.size(); ++i) n += is_in_use(device_id{i});
    return n;
  }
  /// Read only.
  [[nodiscard]] const rank& devices() const noexcept { return rank_; }
  [[nodiscard]] const batch_times& times() const noexcept { return times_; }
  [[nodiscard]] const wake_lateness& lateness() const noexcept { return lateness_; }
  [[nodiscard]] std::uint32_t shard_of(model_id id) const noexcept {
    return models_[id.index()].shard;
  }

  /// The rank's sink.
  void grant(deferred::grant g) noexcept {
    model& m = models_[g.model.index()];
    m.at = {g.device, g.entry};
    m.is_open = true;
    lanes_[g.device.index()][g.entry].offered_to = g.model;
    if (learns_) g.slowness = times_.device_factor(g.device);
    send(m, {.is_grant = true, .number = ++m.granted, .at = now_, .offer = g});
  }
  void waits(model_id) noexcept {}  // Its shard keeps time itself.

 private:
  struct speaker {
    std::uint32_t shard = 0;
    std::uint32_t tenure = 0;
    friend bool operator==(const speaker&, const speaker&) = default;
  };
  struct model {
    std::uint32_t shard = 0;    // The shard that holds the model.
    std::uint32_t granted = 0;  // Number of its last grant,
    bool is_open = false;       // whether it is unanswered,
    device_entry at;            // and the entry that it offered.
    speaker let_go{};           // The shard released last.
  };
  /// An entry's batches, oldest first, and the model that it is offered to.
  struct lane {
    struct entry_batch {
      model_id model;
      time_point starts;
      usual_time usual;
    };
    std::array<entry_batch, rank::entry_depth> batches{};
    std::uint32_t count = 0;
    std::uint32_t passed = 0;  // How many `takes` has passed on.
    std::optional<model_id> offered_to;

    [[nodiscard]] usual_time usual(model_id, std::uint32_t) const noexcept {
      return batches[0].usual;
    }
  };

  [[nodiscard]] bool is_in_use(device_id d) const noexcept {
    return rank_.has_device(d) || rank_.outstanding(d) > 0 ||
           std::ranges::any_of(lanes_[d.index()],
                               [](const lane& l) { return l.offered_to.has_value(); });
  }
  void send(const model& m, const rank_mail& mail) noexcept {
    between_.send(m.shard, mail);
    has_sent_ = true;
  }
  /// Reads a model's new message.
  void hear(model_id id, time_point now) noexcept {
    model& m = models_[id.index()];
    const model_word word = between_.word(id);
    m.shard = word.shard;
    rank_.on_candidate(id, word.best, now);
    if (m.is_open && word.answer.number == m.granted) close(id, m, word.answer, now);
    const speaker who{word.shard, word.tenure};
    if (word.is_leaving && !m.is_open && m.let_go != who) {
      m.let_go = who;
      send(m, {.is_grant = false, .offer = {.model = id, .device = {}, .free_at = {}}});
    }
  }
  /// Handles the answer to a model's grant.
  void close(model_id id, model& m, const grant_answer& answer, time_point now) noexcept {
    m.is_open = false;
    lane& l = lanes_[m.at.device.index()][m.at.entry];
    l.offered_to.reset();
    if (answer.size == 0) return rank_.on_grant_returned(id, m.at.device, now);
    COHORT_ASSERT(l.count < l.batches.size());
    l.batches[l.count++] = {.model = id, .starts = answer.exec_at, .usual = answer.usual};
    times_.on_dispatch(m.at,
                       {.model = id,
                        .device = m.at.device,
                        .size = answer.size,
                        .first_sequence = 0,
                        .exec_at = answer.exec_at,
                        .latest = answer.exec_at,
                        .expected = answer.expected,
                        .work = answer.work},
                       std::min(now, answer.exec_at));  // Its start, not the time of the news.
    rank_.on_grant_used(id, m.at.device, answer.exec_at, answer.expected, now);
  }
  void tell(time_point now) noexcept {
    if (!is_news_ && now - told_ < tells_after) return;
    rank_.look(now);
    between_.tell(
        {.pool = rank_.pool(), .wake_margin = wake_margin_, .next_free = rank_.next_free()});
    told_ = now;
    is_news_ = false;
  }

  exchange& between_;
  rank rank_;
  batch_times times_;
  wake_lateness lateness_;
  std::vector<model> models_;             // By id.
  std::vector<std::vector<lane>> lanes_;  // By device and entry.
  duration wake_margin_{-1};              // Below 0: unknown.
  time_point told_ = time_point{} - tells_after;
  time_point now_{};       // Time of this step.
  bool has_sent_ = false;  // In this step or since the last one.
  bool learns_ = false;
  bool is_news_ = true;
};

}  // namespace cohort::deferred
