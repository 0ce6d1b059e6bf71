// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred batch scheduling behind a gateway: `picker`.
#pragma once

#include <cohort/cluster/answer.hpp>
#include <cohort/cluster/endpoint_table.hpp>
#include <cohort/cluster/leadership.hpp>
#include <cohort/cluster/stream_index.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/engine_core.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// How a picker treats its endpoints and streams.
struct picker_options {
  duration lease = std::chrono::seconds{3};  ///< Of an endpoint, from each report; above 0.
  /// After this, an endpoint has ended what it was sent by a picker that lost sight of it; at
  /// least 0. Until then it gets work only if it reports that it is idle.
  duration settle = std::chrono::seconds{5};
  std::size_t memory = 65536;  ///< Ids of ended streams to remember; at least 1.
  duration response{0};        ///< From the end of a batch to where deadlines are judged.
  /// An endpoint takes its next batch shortly before it ends the one it runs, and queues it.
  bool sends_ahead = false;
  engine::health_options health{.hands_back = true};
  engine::refusal_options refusals{};

  /// @throws config_error If a field is outside its range.
  void validate() const { expects(settle >= duration{0}, "picker: settle must be at least 0"); }
};

/// What a picker has counted.
struct picker_counts {
  std::uint64_t opened = 0;
  std::uint64_t picked = 0;
  std::uint64_t shed = 0;
  std::uint64_t unavailable = 0;
  std::uint64_t closed = 0;  ///< By the gateway, before an answer.
  std::uint64_t stray = 0;   ///< Messages about streams that are not there, or come twice.
  std::uint64_t lost_endpoints = 0;
};

/// Holds the streams of a gateway and answers them in batches: an engine core whose devices are
/// endpoints, each with a number of instances, and whose launch is an answer to all streams of the
/// batch, at one instant, with one endpoint. What becomes of a request is heard on its stream. A
/// picker answers only while it leads (`leadership`); to others streams are `unavailable` at once.
/// An endpoint without a lease (`endpoint_table`) gets no work, and what it had has failed. One
/// that may have work which this picker does not know, after a lost lease or at the start of a
/// term, gets none until it reports that it is idle or `settle` has passed. Each stream that the
/// gateway does not close gets exactly one answer, whatever messages are lost, doubled, late or out
/// of order. A value: it owns no thread and reads no clock. Cost: that of the core, and O(log
/// endpoints). Thread safety: none. Source: Symphony, with an endpoint picker as its scheduler.
template <deferred::batch_scheduler Scheduler>
class basic_picker {
 public:
  using core_type = engine::basic_engine_core<Scheduler>;

  /// @throws config_error If an option is outside its range.
  explicit basic_picker(const picker_options& o = {}, Scheduler scheduler = Scheduler{})
      : options_{o},
        table_{o.lease},
        streams_{o.memory},
        core_{std::move(scheduler), o.response, {}, o.health, o.refusals} {
    o.validate();
    core_.send_ahead(o.sends_ahead);
  }
  basic_picker(const basic_picker&) = delete;
  basic_picker& operator=(const basic_picker&) = delete;

  /// Adds a model, which every endpoint serves. Its requests are not repeatable: a gateway that
  /// tries again opens another stream. @throws config_error As the core.
  model_id add_model(engine::model_config config) {
    config.is_repeatable = false;
    slos_.push_back(config.scheduling.slo);
    return core_.add_model(std::move(config));
  }
  /// Adds an endpoint that runs as many batches at a time. It gets work from its first report on.
  /// @throws config_error If there are no instances.
  endpoint_id add_endpoint(std::uint32_t instances) {
    expects(instances > 0, "picker: an endpoint must have at least 1 instance");
    endpoints_.push_back({.instances = instances});
    endpoints_.back().batches.reserve(std::size_t{4} * instances);
    wakes_.resize(endpoints_.size());
    return table_.add();
  }
  /// The endpoint is gone for good: what it had has failed.
  template <picker_sink Sink>
  void remove_endpoint(endpoint_id id, time_point now, Sink& sink) {
    table_.remove(id);
    wakes_.disarm(id.index());
    lose(id, now, sink);
  }

  /// The store grants or prolongs this picker's term.
  template <picker_sink Sink>
  void on_grant(std::uint64_t epoch, time_point until, time_point now, Sink& sink) {
    catch_up(now, sink);
    const bool is_new = leadership_.on_grant(epoch, until, now);
    // A term that has run out and is prolonged goes on: nobody had it meanwhile.
    if (std::exchange(is_leading_, leadership_.leads(now)) || !is_new) return;
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) distrust(endpoint_id{i}, now, sink);
  }
  /// Another picker has that term, or the store has ended it.
  template <picker_sink Sink>
  void on_other_term(std::uint64_t epoch, time_point now, Sink& sink) {
    leadership_.on_other(epoch);
    catch_up(now, sink);
  }

  /// The gateway opens a stream for a request. An id is opened once.
  template <picker_sink Sink>
  void on_stream(request_id id, model_id model, time_point arrival, time_point now, Sink& sink) {
    catch_up(now, sink);
    stream* const s = streams_.open(id);
    if (s == nullptr) {
      ++counts_.stray;
      return;
    }
    ++counts_.opened;
    if (!is_leading_ || model.index() >= slos_.size())
      return refuse(*s, answer_kind::unavailable, sink);
    s->model = model;
    s->arrival = arrival;
    s->deadline = arrival + slos_[model.index()];
    s->retry_after = duration{0};
    core_sink<Sink> f{*this, now, sink};
    if (const std::optional<refusal> why = core_.submit(*s, now, f)) {
      refuse(*s, is_for_load(*why) ? answer_kind::shed : answer_kind::unavailable, sink);
    }
  }
  /// The endpoint has answered the request of a stream that was picked, or the gateway failed to
  /// reach the endpoint.
  template <picker_sink Sink>
  void on_finished(request_id id, bool failed, time_point now, Sink& sink) noexcept {
    stream* const s = streams_.find(id);
    if (s == nullptr || !s->is_answered || s->is_closed) {
      ++counts_.stray;
      return;
    }
    take_from_batch(*s, failed, now, sink);
  }
  /// The gateway gives a stream up, picked or not. An endpoint may still work on its batch: that
  /// ends with its other streams or, without any, when it should.
  template <picker_sink Sink>
  void on_closed(request_id id, time_point now, Sink& sink) {
    stream* const s = streams_.find(id);
    if (s == nullptr) {
      if (!streams_.bar(id)) ++counts_.stray;
      return;
    }
    if (s->is_closed) {
      ++counts_.stray;
      return;
    }
    s->is_closed = true;
    const bool is_in_batch = s->is_answered;
    if (!is_in_batch) ++counts_.closed;
    core_sink<Sink> f{*this, now, sink};
    core_.cancel(*s, now, f);  // Ends it, if it was held.
    if (is_in_batch) take_from_batch(*s, false, now, sink);
  }

  template <picker_sink Sink>
  void on_report(endpoint_id id, const endpoint_report& r, time_point now, Sink& sink) {
    catch_up(now, sink);
    const report_effect effect = table_.on_report(id, r, now);
    if (effect == report_effect::ignored) return;
    endpoint& e = endpoints_[id.index()];
    if (effect == report_effect::restarted) {
      lose(id, now, sink);
      e.settled_at = now;
    }
    if (e.settled_at == never) e.settled_at = now + options_.settle;
    e.is_heard = true;
    if (r.gauges.is_idle()) end_given_up(e, now, sink);
    if (!r.is_ready) return release(e, now, sink);
    if (e.device && core_.health().is_probing(*e.device)) {
      core_sink<Sink> f{*this, now, sink};
      core_.on_probe(*e.device, false, now, f);
    }
    admit(id, now);
  }

  /// Does all that is due at `now`.
  template <picker_sink Sink>
  void advance(time_point now, Sink& sink) {
    catch_up(now, sink);
    for (std::uint32_t i; (i = wakes_.pop_due(now)) != timer_queue::none;) {
      end_left_alone(endpoint_id{i}, now, sink);
      admit(endpoint_id{i}, now);
    }
    core_sink<Sink> f{*this, now, sink};
    core_.advance(now, f);  // Without a term it holds no stream, but follows those it answered.
  }
  /// When `advance` must be called next, or `never`. Call it after each event, too.
  [[nodiscard]] time_point next_wake() const noexcept {
    const time_point term = is_leading_ ? leadership_.until() : never;
    return std::min({table_.next_loss(), wakes_.next(), core_.next_wake(), term});
  }

  [[nodiscard]] const picker_counts& counts() const noexcept { return counts_; }
  [[nodiscard]] bool leads() const noexcept { return is_leading_; }
  /// Streams that have not ended.
  [[nodiscard]] std::size_t live_streams() const noexcept { return streams_.live(); }
  /// Whether the endpoint may get work.
  [[nodiscard]] bool is_in_service(endpoint_id id) const noexcept {
    const endpoint& e = endpoints_[id.index()];
    return e.device && core_.health().is_in_service(*e.device);
  }
  /// Batches that the endpoint has, as far as the picker knows.
  [[nodiscard]] std::size_t batches_of(endpoint_id id) const noexcept {
    return endpoints_[id.index()].batches.size();
  }
  [[nodiscard]] const core_type& core() const noexcept { return core_; }

 private:
  struct stream final : request {
    // Mutable because the core shows batches as const.
    mutable bool is_answered = false;
    mutable endpoint_id endpoint{};
    mutable batch_ticket at{};
    bool is_closed = false;

    void reset() noexcept {
      is_answered = is_closed = false;
      sequence = 0;
    }
  };
  struct open_batch {
    batch_ticket at;
    std::uint32_t left;          // Streams that have not ended.
    std::uint32_t good = 0;      // That were answered by the endpoint.
    time_point until;            // When it should have ended.
    bool is_given_up = false;    // It hangs, and its streams have ended.
    bool is_left_alone = false;  // The gateway closed its last streams.
  };
  struct endpoint {
    std::uint32_t instances = 1;
    std::optional<device_id> device{};  // While it may get work, and in the core's health.
    std::vector<open_batch> batches{};
    time_point settled_at = never;  // From then on it has no work that is not known.
    bool is_heard = false;          // It has reported since `settled_at` was set.
  };

  /// The core's sink.
  template <class Sink>
  struct core_sink {
    basic_picker& self;
    time_point now;
    Sink& sink;

    void launch(const deferred::batch& b) noexcept {
      const endpoint_id id = self.endpoint_of_[b.device.index()];
      self.endpoints_[id.index()].batches.push_back(
          {.at = b.at(), .left = b.size(), .until = std::max(now, b.exec_at) + b.expected});
      self.counts_.picked += b.size();
      for (const request& r : b.requests) {
        const auto& s = static_cast<const stream&>(r);
        s.is_answered = true;
        s.endpoint = id;
        s.at = b.at();
        sink.answer(picker_answer{.stream = s.id,
                                  .kind = answer_kind::pick,
                                  .endpoint = id,
                                  .batch = b.number,
                                  .size = b.size(),
                                  .epoch = self.leadership_.epoch()});
      }
    }
    void ended(request& r, outcome how) noexcept {
      auto& s = static_cast<stream&>(r);
      if (s.is_answered || s.is_closed) {
        const request_id id = s.id;
        self.streams_.end(s);
        sink.over(id, how);
      } else {
        self.refuse(s,
                    how == outcome::dropped || how == outcome::refused ? answer_kind::shed
                                                                       : answer_kind::unavailable,
                    sink);
      }
    }
    void model_removed(model_id) noexcept {}
    [[nodiscard]] bool abandon(const deferred::batch& b) noexcept {
      endpoint& e = self.endpoints_[self.endpoint_of_[b.device.index()].index()];
      if (open_batch* const o = find(e, b.at())) o->is_given_up = true;
      return true;
    }
    /// The next report of the endpoint tells.
    void probe(device_id, model_id) noexcept {}
  };

  [[nodiscard]] static bool is_for_load(refusal why) noexcept {
    return why == refusal::queue_full || why == refusal::overloaded ||
           why == refusal::deadline_infeasible;
  }
  [[nodiscard]] static open_batch* find(endpoint& e, batch_ticket at) noexcept {
    const auto b =
        std::ranges::find(e.batches, at.number, [](const open_batch& o) { return o.at.number; });
    return b == e.batches.end() ? nullptr : &*b;
  }

  template <class Sink>
  void refuse(stream& s, answer_kind kind, Sink& sink) noexcept {
    const picker_answer a{.stream = s.id,
                          .kind = kind,
                          .epoch = leadership_.epoch(),
                          .retry_after = kind == answer_kind::shed ? s.retry_after : duration{0}};
    ++(kind == answer_kind::shed ? counts_.shed : counts_.unavailable);
    streams_.end(s);
    sink.answer(a);
    sink.over(a.stream, kind == answer_kind::shed ? outcome::dropped : outcome::failed);
  }

  /// Ends the term and leases that have run out.
  template <class Sink>
  void catch_up(time_point now, Sink& sink) {
    if (is_leading_ && !leadership_.leads(now)) {
      is_leading_ = false;
      refuse_held(now, sink);
    }
    while (const std::optional<endpoint_id> lost = table_.take_lost(now)) {
      ++counts_.lost_endpoints;
      lose(*lost, now, sink);
      wake(*lost, endpoints_[lost->index()].settled_at);
    }
  }
  /// Held streams, none of which can be picked, are `unavailable`.
  template <class Sink>
  void refuse_held(time_point now, Sink& sink) {
    if (streams_.live() == 0) return;
    core_sink<Sink> f{*this, now, sink};
    streams_.for_each([&](stream& s) {
      if (s.state == request_state::queued) core_.cancel(s, now, f);
    });
  }

  /// A stream of a batch has ended. The batch ends with the last, unless the endpoint may be at
  /// work on it.
  template <class Sink>
  void take_from_batch(stream& s, bool failed, time_point now, Sink& sink) noexcept {
    const batch_ticket at = s.at;
    const endpoint_id id = s.endpoint;
    const bool is_closed = s.is_closed;
    endpoint& e = endpoints_[id.index()];
    core_sink<Sink> f{*this, now, sink};
    core_.on_request_complete(at, s, failed, now, f);
    open_batch* const b = find(e, at);  // Only now: a launch may have moved it.
    COHORT_ASSERT(b != nullptr);        // Streams of a batch end before it, or with it.
    b->good += !failed && !is_closed;
    if (--b->left > 0) return;
    if (is_closed && now < b->until) {
      b->is_left_alone = true;
      return wake(id, b->until);
    }
    end_batch(e, *b, b->good == 0 && !is_closed, now, sink);
    if (!e.device) wake(id, now);  // Perhaps it was only waited for.
  }
  template <class Sink>
  void end_batch(endpoint& e, const open_batch& b, bool failed, time_point now,
                 Sink& sink) noexcept {
    const batch_ticket at = b.at;
    e.batches.erase(e.batches.begin() + (&b - e.batches.data()));
    core_sink<Sink> f{*this, now, sink};
    core_.on_complete(at, failed, now, f);
  }
  template <class Sink, class Which>
  void end_batches(endpoint& e, bool failed, Which which, time_point now, Sink& sink) noexcept {
    for (std::size_t i = e.batches.size(); i-- > 0;) {
      if (which(e.batches[i])) end_batch(e, e.batches[i], failed, now, sink);
    }
  }
  /// An idle endpoint does not work on batches that hang.
  template <class Sink>
  void end_given_up(endpoint& e, time_point now, Sink& sink) noexcept {
    end_batches(e, true, [](const open_batch& b) { return b.is_given_up; }, now, sink);
  }
  template <class Sink>
  void end_left_alone(endpoint_id id, time_point now, Sink& sink) noexcept {
    endpoint& e = endpoints_[id.index()];
    time_point next = never;
    end_batches(
        e, false,
        [&](const open_batch& b) {
          if (b.is_left_alone && b.until > now) next = std::min(next, b.until);
          return b.is_left_alone && b.until <= now;
        },
        now, sink);
    wake(id, next);
  }

  void wake(endpoint_id id, time_point at) noexcept {
    if (at < wakes_.due(id.index())) wakes_.arm(id.index(), at);
  }
  /// The endpoint gets no more work. What it has goes on.
  template <class Sink>
  void release(endpoint& e, time_point now, Sink& sink) {
    if (!e.device) return;
    const device_id d = *std::exchange(e.device, std::nullopt);
    const bool is_probing = core_.health().is_probing(d);
    core_.remove_device(d, now);
    if (is_probing) {
      core_sink<Sink> f{*this, now, sink};
      core_.on_probe(d, true, now, f);
    }
    if (std::ranges::none_of(endpoints_, [](const endpoint& x) { return x.device.has_value(); })) {
      refuse_held(now, sink);
    }
  }
  /// The endpoint is not to be reached: what it had has failed.
  template <class Sink>
  void lose(endpoint_id id, time_point now, Sink& sink) {
    endpoint& e = endpoints_[id.index()];
    release(e, now, sink);
    end_batches(e, true, [](const open_batch&) { return true; }, now, sink);
    unsettle(e, now);
  }
  void unsettle(endpoint& e, time_point now) const noexcept {
    e.settled_at = now + options_.settle;
    e.is_heard = false;
  }
  /// The endpoint may have work of another picker's.
  template <class Sink>
  void distrust(endpoint_id id, time_point now, Sink& sink) {
    endpoint& e = endpoints_[id.index()];
    release(e, now, sink);
    unsettle(e, now);
    if (table_.has_lease(id)) wake(id, e.settled_at);
  }
  /// The endpoint gets work from now on, if it may.
  void admit(endpoint_id id, time_point now) {
    endpoint& e = endpoints_[id.index()];
    if (!is_leading_ || e.device || !table_.has_lease(id) || !e.batches.empty()) return;
    const endpoint_report& last = table_.last(id);
    if (!last.is_ready) return;
    if (now < e.settled_at && !(e.is_heard && last.gauges.is_idle())) return wake(id, e.settled_at);
    const device_id d = core_.add_device(now, e.instances);
    e.device = d;
    if (d.index() >= endpoint_of_.size()) endpoint_of_.resize(d.index() + 1);
    endpoint_of_[d.index()] = id;
  }

  picker_options options_;
  endpoint_table table_;
  leadership leadership_;
  stream_index<stream> streams_;  // Before the core, which links them.
  core_type core_;
  std::vector<duration> slos_;  // By model.
  std::vector<endpoint> endpoints_;
  std::vector<endpoint_id> endpoint_of_;  // By device.
  timer_queue wakes_;  // By endpoint: when it is settled, or has ended a batch that is left alone.
  picker_counts counts_;
  bool is_leading_ = false;
};

/// The picker of servers: it learns how long batches take, and tunes itself.
using picker = basic_picker<deferred::basic_tuned_scheduler<deferred::sliced_trials>>;

}  // namespace cohort::cluster
