// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues and candidates of some models: the half of deferred scheduling that sees requests.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/foresight.hpp>
#include <cohort/deferred/learned_latency.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// Takes the requests of some models, keeps the best candidate of each up to date, and finalises a
/// batch when a device is granted. A value: it owns no thread and reads no clock. It talks to a
/// `shard_sink`. Model ids are small: slots of removed models are reused. Cost: O(log models + log
/// queue) a call, no allocation except in `add_model`. Thread safety: none. Source: Symphony,
/// section 4.2 and Appendix D.
template <window_policy Window = frontrun, gather_policy Gather = drop_head,
          target_policy Target = staggered_target, priority_policy Priority = earliest_latest>
class basic_model_shard {
 public:
  explicit basic_model_shard(network_delays delays = {}, Window window = {}, Gather gather = {},
                             Target target = {}, Priority priority = {})
      : delays_{delays},
        window_{std::move(window)},
        gather_{std::move(gather)},
        target_{std::move(target)},
        priority_{std::move(priority)},
        wake_margin_{delays.wake_margin},
        is_delayed_{delays.before(1) > duration{0}} {
    expects(delays.control >= duration{0} && delays.data_per_request >= duration{0} &&
                delays.response >= duration{0} && delays.wake_margin >= duration{0},
            "network_delays: every delay must be at least 0");
  }

  /// Adds a model under an id that is free (see `is_served`). Allocates.
  /// @param sharing How many batches its devices may run at one time; multiplies latencies.
  /// @throws config_error If a batch of one cannot meet the SLO, or `longest_wait` is negative.
  void add_model(model_id id, const model_config& config, std::uint32_t sharing = 1) {
    model_state m{config, sharing, delays_};
    expects(m.latency.sent()(1) <= m.slo,
            "model_config: slo must be at least the latency of batch 1");
    expects(m.longest_wait >= duration{0}, "model_config: longest_wait must be at least 0");
    retarget(place(id, std::move(m)));
  }

  /// Hands a model over with its waiting requests, for `put_model` of another shard. The model must
  /// have no outstanding grant.
  template <shard_sink Sink>
  model_state take_model(model_id id, Sink& sink) noexcept {
    publish(id, *models_[id.index()], candidate{}, distant_past, sink);
    model_state m = std::move(*models_[id.index()]);
    models_[id.index()].reset();
    return m;
  }
  /// Takes over a model from a shard with the same delays, under an id that is free here. Its
  /// candidate is published by the next `advance`. Allocates.
  void put_model(model_id id, model_state m, time_point now) {
    model& mine = place(id, std::move(m));
    mine.latency.correct(learning_);
    retarget(mine);
    arm(mine, id.index(), now);
  }

  /// Changes `sharing` of the models that satisfy `is_meant(model_id)`. Candidates are updated by
  /// the next `advance`. Allocates.
  /// @throws config_error If a model could no longer meet its SLO; then nothing changes.
  template <class F>
  void set_sharing(std::uint32_t sharing, F is_meant, time_point now) {
    for_each([&](const model& m, std::uint32_t slot) {
      expects(!is_meant(model_id{slot}) ||
                  m.latency.profile()(1) * sharing + delays_.before(1) <= m.slo,
              "add_device: capacity must be at most a model's slo by its latency of batch 1");
    });
    for_each([&](model& m, std::uint32_t slot) {
      if (!is_meant(model_id{slot})) return;
      m.latency.share(sharing);
      reconsider(m, slot, now);
    });
  }

  /// Removes a model and drops its waiting requests. It must have no outstanding grant.
  template <shard_sink Sink>
  void remove_model(model_id id, Sink& sink) {
    while (!queue(id).empty()) drop_first(*models_[id.index()], sink);
    take_model(id, sink);
  }

  [[nodiscard]] bool is_served(model_id id) const noexcept {
    return id.index() < models_.size() && models_[id.index()].has_value();
  }
  [[nodiscard]] std::uint32_t queued_requests(model_id id) const noexcept {
    return models_[id.index()]->queue.size();
  }
  /// The waiting requests, by deadline.
  [[nodiscard]] const request_queue& queue(model_id id) const noexcept {
    return models_[id.index()]->queue;
  }
  [[nodiscard]] bool is_full(model_id id) const noexcept {
    return models_[id.index()]->queue.is_full();
  }
  /// Whether a request that arrives at `now` could be in time in a batch of one, started at once.
  [[nodiscard]] bool is_feasible(model_id id, time_point deadline, time_point now) const noexcept {
    return now + least_time(id) <= deadline;
  }
  /// The shortest feasible time from arrival to deadline: a batch of one, started at once.
  [[nodiscard]] duration least_time(model_id id) const noexcept {
    return models_[id.index()]->latency.sent()(1) + delays_.after();
  }
  [[nodiscard]] const load_view& load(model_id id) const noexcept {
    return models_[id.index()]->load;
  }
  /// The model's SLO, less the delay after the end.
  [[nodiscard]] duration slo(model_id id) const noexcept { return models_[id.index()]->slo; }
  /// Upper bound on the time from arrival to deadline that the model's windows assume; `unbounded`:
  /// the request's own.
  [[nodiscard]] duration most_slack(model_id id) const noexcept {
    return is_served(id) && models_[id.index()]->slo_steers ? slo(id) + delays_.after() : unbounded;
  }
  [[nodiscard]] std::uint32_t target(model_id id) const noexcept {
    return models_[id.index()]->target;
  }
  /// The model's present latencies, and what was learned of them.
  [[nodiscard]] const learned_latency& latency(model_id id) const noexcept {
    return models_[id.index()]->latency;
  }
  /// Usual time of batches of a size.
  [[nodiscard]] usual_time usual(model_id id, std::uint32_t size) const noexcept {
    return is_served(id) ? models_[id.index()]->latency.usual(size) : usual_time{};
  }

  /// How much longer than usual a batch of a size is planned to take; 0 while nothing is known.
  [[nodiscard]] duration usual_excess(model_id id, std::uint32_t size) const noexcept {
    const learned_latency& l = models_[id.index()]->latency;
    const usual_time u = l.usual(size);
    if (!u.is_known) return duration{0};
    return std::max(duration{0},
                    l.run()(size) - stretched(l.profile()(size), std::exp(u.log_ratio)));
  }

  /// Sets how to learn latencies. Candidates are updated by the next `advance`.
  void learn(const learning& how, time_point now) {
    how.validate();
    learning_ = how;
    for_each([&](model& m, std::uint32_t slot) { correct(m, slot, now); });
  }
  /// Whether decisions use learned latencies; and the configured delays.
  [[nodiscard]] bool learns() const noexcept { return learning_.is_on; }
  [[nodiscard]] const network_delays& delays() const noexcept { return delays_; }
  /// Replaces the policies. Candidates are updated by the next `advance`.
  void adopt(Window window, Gather gather, Target target, Priority priority, time_point now) {
    window_ = std::move(window);
    gather_ = std::move(gather);
    target_ = std::move(target);
    priority_ = std::move(priority);
    for_each([&](model& m, std::uint32_t slot) {
      m.replace();
      reconsider(m, slot, now);
    });
  }
  /// Takes over another shard's measurements of models with the same ids and profiles.
  void assume(const basic_model_shard& other, time_point now) {
    wake_margin_ = other.wake_margin_;
    for_each([&](model& m, std::uint32_t slot) {
      if (!other.is_served(model_id{slot})) return;
      const model& known = *other.models_[slot];
      m.rate = known.rate;
      m.load = known.load;
      m.latency.assume(known.latency);
      m.latency.correct(learning_);
      reconsider(m, slot, now);
    });
  }

  /// Adds the time of an ended batch; its model may be gone. Candidates follow at the next
  /// `advance`.
  void on_measured(const batch_time& t, time_point now) noexcept {
    if (!is_served(t.model)) return;
    model& m = *models_[t.model.index()];
    if (m.latency.add(t)) correct(m, t.model.value(), now);
  }
  /// Sets how long before an event is due the driver must be told to wake up.
  void set_wake_margin(duration margin) noexcept { wake_margin_ = margin; }
  /// How long before its start a batch of one is sent.
  [[nodiscard]] duration least_lead() const noexcept { return delays_.before(1) + wake_margin_; }

  /// Predicts the window of a served model for requests that it has not yet been given.
  [[nodiscard]] foresight<Window, Gather> foresee(model_id id,
                                                  double idle_fraction) const noexcept {
    return {*models_[id.index()], window_, delays_, wake_margin_, idle_fraction};
  }

  /// Takes a request. Its model must be served and its queue not full.
  template <shard_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    const model_id id = r.model;  // `choose` may drop `r`, which then belongs to the caller again.
    model& m = *models_[id.index()];
    r.state = request_state::queued;
    r.sequence = ++m.arrivals;
    // Not `now`: a driver may have left the request waiting while no device was free.
    if (m.rate.add(std::min(r.arrival, now))) retarget(m);
    m.queue.push(r, r.deadline - delays_.after());
    publish(id, m, choose(id, m, now, distant_past, sink), now, sink);
  }

  /// Counts a request that was refused because of overload, as an arrival and as bad.
  void on_refused(const request& r, time_point now) noexcept {
    model& m = *models_[r.model.index()];
    if (m.rate.add(std::min(r.arrival, now))) retarget(m);
    m.dropped();
  }

  /// Takes back a request that is still queued. It is then idle; the sink is not told.
  /// @returns Whether it was queued.
  template <shard_sink Sink>
  bool on_cancel(request& r, time_point now, Sink& sink) noexcept {
    model& m = *models_[r.model.index()];
    if (r.state != request_state::queued || !m.queue.erase(r, r.deadline - delays_.after())) {
      return false;
    }
    r.state = request_state::idle;
    look_again(r.model, m, now, sink);
    return true;
  }

  /// Receives a device for the model and sends the best batch, unless there is none or its window,
  /// computed again, opens later.
  template <shard_sink Sink>
  void on_grant(const grant& g, time_point now, Sink& sink) noexcept {
    if (!is_served(g.model)) {
      sink.grant_returned(g.model, g.device);
      return;
    }
    model& m = *models_[g.model.index()];
    m.load.pool = g.pool;
    m.forget();
    candidate best = choose(g.model, m, now, g.free_at, sink);
    if (best.is_empty() || best.send_at() > now) {
      publish(g.model, m, best, now, sink);
      sink.grant_returned(g.model, g.device);
      return;
    }
    if (g.slowness > 1) best.size = m.shortened(best.size, now, g);
    batch b{.model = g.model,
            .device = g.device,
            .entry = g.entry,
            .requests = {},
            .first_sequence = m.queue[0].sequence,
            .exec_at = std::max({best.exec_at, now + delays_.before(best.size), g.free_at}),
            .latest = best.latest,
            .expected = stretched(m.latency.run()(best.size), g.slowness),
            .work = m.latency.profile()(best.size)};
    if (best.size == 1) {
      b.expected *= m.queue[0].rows;
      b.work *= m.queue[0].rows;
    }
    m.queue.pop(best.size, [&](request& r) {
      r.state = request_state::running;
      r.starts = b.exec_at;
      r.batch = best.size;
      b.requests.push_back(r);
    });
    m.served(best.size, b.exec_at);
    const time_point exec_at = b.exec_at;
    const duration expected = b.expected;
    sink.dispatch(std::move(b));
    look_again(g.model, m, now, sink);
    sink.grant_used(g.model, g.device, exec_at, expected);
  }

  /// Notes that no device was free when the window of the model's candidate opened.
  void on_waiting(model_id id) noexcept {
    model& m = *models_[id.index()];
    if (!m.published.is_empty()) {
      arm(m, id.index(), std::min(m.looked_at, too_late(m.published)));
    }
  }

  /// Refreshes the candidates past their latest start.
  template <shard_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    for (std::uint32_t slot; (slot = refresh_.pop_due(now)) != timer_queue::none;) {
      model& m = *models_[slot];
      m.looked_at = never;
      look_again(model_id{slot}, m, now, sink);
    }
  }

  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept { return refresh_.next(); }

 private:
  using model = prepared_model<Window>;

  model& place(model_id id, model_state m) {
    if (id.index() >= models_.size()) {
      models_.resize(id.index() + 1);
      refresh_.resize(id.index() + 1);
    }
    COHORT_ASSERT(!models_[id.index()]);
    return models_[id.index()].emplace(std::move(m));
  }

  [[gnu::noinline]] void retarget(model& m) noexcept {
    m.forget();
    m.measure();
    const latency_curve& sent = m.latency.sent();
    m.target = std::clamp(target_.target(m.load, m.slo, sent), 1U, sent.max_batch());
  }
  /// Updates a model after a change of its latencies or of the policies.
  void reconsider(model& m, std::uint32_t slot, time_point now) noexcept {
    retarget(m);
    if (!m.published.is_empty()) arm(m, slot, now);
  }
  void arm(model& m, std::size_t slot, time_point at) noexcept {
    m.looked_at = at;
    refresh_.arm(slot, at);
  }
  void correct(model& m, std::uint32_t slot, time_point now) noexcept {
    if (m.latency.correct(learning_)) reconsider(m, slot, now);
  }
  /// Calls `f(model, slot)` for each.
  template <class F>
  void for_each(F f) {
    for (std::uint32_t i = 0; i < models_.size(); ++i) {
      if (models_[i]) f(*models_[i], i);
    }
  }

  /// Just after the latest start: at it the candidate is valid, and the timer would re-arm forever.
  static time_point too_late(const candidate& c) noexcept { return c.send_by() + duration{1}; }

  template <shard_sink Sink>
  [[gnu::noinline]] void drop_some(model& m, std::uint32_t count, Sink& sink) noexcept {
    for (; count > 0; --count) drop_first(m, sink);
  }
  template <shard_sink Sink>
  void drop_first(model& m, Sink& sink) noexcept {
    request& r = m.queue.pop();
    r.state = request_state::idle;
    m.dropped();
    // Without grants its view of the pool would stay old, and a starved model starved.
    m.load.pool = sink.pool(r.model);
    m.forget();
    sink.drop(r);
  }

  /// Drops the requests that the gather policy gives up and returns the remaining candidate.
  /// Inlined so that values no policy asks for are not computed.
  template <shard_sink Sink>
  [[gnu::always_inline]] candidate choose(model_id id, model& m, time_point now, time_point free_at,
                                          Sink& sink) noexcept {
    const latency_curve& run = m.latency.run();
    const latency_curve& sent = is_delayed_ ? m.latency.sent() : run;
    const gathered g = gather_.gather(m.queue, reach{run, sent, now, free_at}, m.target);
    if (g.drop > 0) [[unlikely]]
      drop_some(m, g.drop, sink);
    if (g.size == 0) return {};
    const time_point deadline = m.queue.first_deadline();
    batch_view view = m.view_of(g.size, m.aim(deadline, m.queue[0]), first_arrival(m),
                                sink.pool(id).idle_fraction);
    const time_point latest = deadline - view.latency;
    time_point exec_at = m.opens(window_, view);
    if (exec_at > latest) exec_at = latest;
    // Without this bound the first request need not be read, nor brought into the cache.
    if (m.longest_wait != unbounded) [[unlikely]]
      exec_at = std::min(exec_at, m.queue[0].arrival + m.longest_wait);
    if (m.slo_steers) [[unlikely]]
      view.deadline = std::max(view.deadline, std::min(deadline, m.served_at + m.slo));
    return {.size = g.size,
            .exec_at = exec_at,
            .latest = latest,
            .lead = delays_.before(g.size) + wake_margin_,
            .margin = wake_margin_,
            .urgency = priority_.urgency(view)};
  }

  /// Only read if a policy asks for it: it is a cache miss.
  [[gnu::always_inline]] time_point first_arrival(const model& m) const noexcept {
    return asks_for_arrival(window_) || asks_for_arrival(priority_) ? m.queue[0].arrival
                                                                    : distant_past;
  }

  /// Publishes the candidate again. Arrivals call `choose` directly.
  template <shard_sink Sink>
  [[gnu::noinline]] void look_again(model_id id, model& m, time_point now, Sink& sink) noexcept {
    if (m.queue.empty()) return publish(id, m, candidate{}, now, sink);
    publish(id, m, choose(id, m, now, distant_past, sink), now, sink);
  }

  template <shard_sink Sink>
  [[gnu::always_inline]] void publish(model_id id, model& m, const candidate& c, time_point now,
                                      Sink& sink) noexcept {
    look_at(id, m, c, now, telling_what_waits<Sink>);
    if (c == m.published) return;
    m.published = c;
    sink.candidate_changed(id, c);
  }
  /// Sets the timer that looks at the model's candidate again, at the latest when it is too late.
  [[gnu::always_inline]] void look_at(model_id id, model& m, const candidate& c, time_point now,
                                      bool is_told_of_waiting) noexcept {
    // Until the window opens, a rank with `waits` keeps time for the candidate.
    const bool is_left = is_told_of_waiting && c.send_at() > now;
    time_point look = is_left ? never : too_late(c);
    if (c.is_empty() || (is_left && !following_pool<Window>)) {
      if (m.looked_at != never) arm(m, id.index(), never);
      return;
    }
    if constexpr (following_pool<Window>) {  // Devices may idle before that without an arrival.
      if (c.exec_at > now) look = std::min(look, now + Window::looks_again);
      if (m.looked_at <= look) return;  // An early look costs little.
    } else if (m.looked_at == look) {
      return;
    }
    m.looked_at = look;
    refresh_.arm(id.index(), look);
  }

  network_delays delays_;
  learning learning_;
  [[no_unique_address]] Window window_;
  [[no_unique_address]] Gather gather_;
  [[no_unique_address]] Target target_;
  [[no_unique_address]] Priority priority_;
  duration wake_margin_;  // As configured or as learned.
  bool is_delayed_;       // If false, a sent batch starts at once: `sent` is `run`.
  std::vector<std::optional<model>> models_;
  timer_queue refresh_;
};

}  // namespace cohort::deferred
