// SPDX-License-Identifier: Apache-2.0
/// @file
/// A scheduler that tunes itself by simulating itself: `tuned_scheduler`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/foresight.hpp>
#include <cohort/deferred/twin/arrival_record.hpp>
#include <cohort/deferred/twin/load_watch.hpp>
#include <cohort/deferred/twin/trial.hpp>
#include <cohort/deferred/twin/trial_runner.hpp>
#include <cohort/deferred/twin/tuner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// Counts rounds of trials by their end.
struct tuning_rounds {
  std::uint64_t judged = 0;          ///< Settings changed or kept by a result.
  std::uint64_t changed = 0;         ///< Rounds of these that changed them.
  std::uint64_t without_enough = 0;  ///< Too few requests to judge.
  /// Kept because models or devices came or went, the answer came too late, or memory ran out.
  std::uint64_t without_answer = 0;
  duration cost{0};  ///< CPU time of judged rounds, if the runner measures it.
};

/// An adaptive scheduler that learns latencies and periodically tries other settings on recent
/// arrivals: a copy of itself runs under each, and it adopts the best. With too few requests it
/// keeps its settings. Deterministic with `inline_trials`, which run within `advance`, and with
/// `sliced_trials`, which run there a little at a time. With a runner that has a thread, the first
/// `advance` after an answer adopts it. Cost: that of `basic_scheduler`, and for each round a copy
/// of measurements and arrivals. Thread safety: none. Source: none of the papers, which have no
/// settings to tune.
template <trial_runner Runner = inline_trials>
class basic_tuned_scheduler {
 public:
  /// @throws config_error If an option is outside its range.
  explicit basic_tuned_scheduler(network_delays delays = {}, const tuning_options& o = {},
                                 Runner runner = {})
      : tuner_{o},
        scheduler_{make_adaptive_scheduler(delays, o.initial.policy(), o.initial.learns())},
        job_{std::make_unique<tuning_job>(delays)},
        runner_{std::move(runner)} {
    job_->start.arrivals.reserve(most_arrivals);
    job_->start.waiting.reserve(most_waiting);
    job_->tried.reserve(tuner::most_tried);
    job_->results.reserve(tuner::most_tried);
    changes_.reserve(most_changes);
  }
  basic_tuned_scheduler(basic_tuned_scheduler&&) = default;
  // A round in progress would lose its job.
  basic_tuned_scheduler& operator=(basic_tuned_scheduler&&) = delete;

  model_id add_model(model_config config) {
    const model_id id = scheduler_.add_model(config);
    if (id.index() >= models_.size()) {
      models_.resize(id.index() + 1);
      first_arrivals_.resize(id.index() + 1);
    }
    models_[id.index()] = std::move(config);
    first_arrivals_[id.index()] = record_.added();
    are_models_new_ = true;
    begin_anew();
    return id;
  }
  template <scheduler_sink Sink>
  void remove_model(model_id id, time_point now, Sink& sink) noexcept {
    scheduler_.remove_model(id, now, sink);
    models_[id.index()].reset();
    are_models_new_ = true;
    begin_anew();
  }
  device_id add_device(time_point now, std::uint32_t capacity = 1) {
    const device_id id = scheduler_.add_device(now, capacity);
    begin_anew();
    return id;
  }
  void remove_device(device_id d, time_point now) noexcept {
    scheduler_.remove_device(d, now);
    begin_anew();
  }

  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    scheduler_.set_in_service(d, is_in_service, now);
    begin_anew();
  }

  void send_ahead(bool on) noexcept { scheduler_.send_ahead(on); }
  void on_refused(const request& r, time_point now) noexcept {
    if (tuner_.options().is_on) note_arrival(r, now);
    scheduler_.on_refused(r, now);
  }
  [[nodiscard]] time_point next_free(model_id m) const noexcept { return scheduler_.next_free(m); }
  template <scheduler_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    if (tuner_.options().is_on) note_arrival(r, now);
    scheduler_.on_arrival(r, now, sink);
  }
  template <scheduler_sink Sink>
  bool on_cancel(request& r, time_point now, Sink& sink) noexcept {
    return scheduler_.on_cancel(r, now, sink);
  }
  void on_complete(device_entry at, time_point now, bool failed = false) noexcept {
    scheduler_.on_complete(at, now, failed);
  }
  template <scheduler_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    if (next_ <= now) start_trials(now);
    if (is_trying_) {
      if constexpr (requires { runner_.work(now); }) runner_.work(now);
      if (runner_.is_done()) take_answer(now);
    }
    scheduler_.advance(now, sink);
  }
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(next_, scheduler_.next_wake());
  }

  // For `patient_scheduler`.
  [[nodiscard]] time_point quiet_until(time_point now) const noexcept {
    return scheduler_.quiet_until(now);
  }
  [[nodiscard]] bool may_wait(const unseen_requests& unseen, time_point sends,
                              time_point drops) const noexcept {
    return scheduler_.may_wait(unseen, sends, drops);
  }
  [[nodiscard]] bool is_scarce() const noexcept { return scheduler_.is_scarce(); }

  [[nodiscard]] const auto& models() const noexcept { return scheduler_.models(); }
  [[nodiscard]] const rank& devices() const noexcept { return scheduler_.devices(); }
  [[nodiscard]] const batch_times& times() const noexcept { return scheduler_.times(); }
  [[nodiscard]] const wake_lateness& lateness() const noexcept { return scheduler_.lateness(); }
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept {
    return scheduler_.capacity(d);
  }
  /// The present settings, and their last hundred changes, oldest first.
  [[nodiscard]] const settings& present() const noexcept { return tuner_.present(); }
  [[nodiscard]] const std::vector<settings_change>& changes() const noexcept { return changes_; }
  /// Counts of its rounds of trials.
  [[nodiscard]] const tuning_rounds& rounds() const noexcept { return rounds_; }

 private:
  static constexpr std::size_t most_arrivals = 65536;  // Per round.
  static constexpr std::size_t most_waiting = 16384;
  static constexpr std::size_t most_changes = 100;
  static constexpr std::size_t least_to_try = 200;  // Requests: of fewer little can be told.

  void note_arrival(const request& r, time_point now) noexcept {
    last_arrival_ = std::max(last_arrival_, std::min(r.arrival, now));
    record_.add(last_arrival_, r.deadline - last_arrival_, r.model);
    if (load_.add(last_arrival_)) {
      tuner_.wake();
      if (!is_trying_) next_ = std::max(now, job_->start.now + tuner_.pause(job_->cost));
    }
    if (next_ == never && !is_trying_) next_ = now + tuner_.pause(job_->cost);
  }

  void start_trials(time_point now) noexcept {
    next_ = never;  // Until the first arrival.
    try {
      if (!prepare(now)) {
        ++rounds_.without_enough;
        return;
      }
    } catch (const std::bad_alloc&) {
      ++rounds_.without_answer;
      return;
    }
    is_trying_ = true;
    is_void_ = false;
    runner_.start(*job_);
  }

  /// Allocates if models or devices are new. @returns Whether there are enough requests.
  bool prepare(time_point now) {
    const tuning_options& o = tuner_.options();
    tuning_job& j = *job_;
    j.start.now = now;
    j.arrived = record_.added();
    if (are_models_new_) j.set_models(models_);
    are_models_new_ = false;
    const std::size_t n =
        std::min({most_arrivals, record_.recent(now, o.window, o.least_requests, o.longest_window),
                  std::max(least_to_try, record_.since(load_.since()))});
    j.start.arrivals.clear();
    if (n > 0) copy_arrivals(n, j.start);
    if (j.start.arrivals.size() < std::min<std::size_t>(o.least_requests, least_to_try)) {
      return false;
    }
    j.start.unjudged = j.start.arrivals.size() * 3 / 10;  // A change takes time to show.
    ++j.start.seed;
    copy_devices(j.start);
    j.start.sends_ahead = scheduler_.devices().sends_ahead();
    copy_queues(j.start);
    j.known.assume(scheduler_, now);
    tuner_.candidates(j.tried);
    return true;
  }

  /// Copies the last n arrivals, the first shifted to now, except those of removed models.
  void copy_arrivals(std::size_t n, trial_start& to) const {
    const std::size_t size = record_.size();
    const duration shift = to.now - record_[size - n].at;
    for (std::size_t i = size - n; i < size; ++i) {
      recorded_arrival a = record_[i];
      if (record_.added() - size + i < first_arrivals_[a.model.index()]) continue;
      a.at += shift;
      a.slack = std::min(a.slack, scheduler_.models().most_slack(a.model));
      to.arrivals.push_back(a);
    }
  }
  void copy_devices(trial_start& to) const {
    to.capacities.clear();
    to.slowness.clear();
    to.work.clear();
    const rank& r = scheduler_.devices();
    for (device_id d{0}; r.has_ever(d); d = device_id{d.value() + 1}) {
      if (!r.is_in_service(d)) continue;
      to.capacities.push_back(r.capacity(d));
      to.slowness.push_back(scheduler_.times().device_factor(d));
      for (std::uint32_t e = 0; e < r.capacity(d); ++e) {
        const time_point until = r.busy_until({d, e});
        // An overrunning batch counts as busy for as long again: a hung device is not idle.
        to.work.push_back(until == distant_past ? duration{0}
                                                : std::max(until - to.now, to.now - until));
      }
    }
  }
  void copy_queues(trial_start& to) const {
    to.waiting.clear();
    for (std::uint32_t m = 0; m < to.models.size(); ++m) {
      if (!to.models[m]) continue;
      const request_queue& q = scheduler_.models().queue(model_id{m});
      for (std::uint32_t i = 0; i < q.size() && to.waiting.size() < most_waiting; ++i) {
        const duration so_far = to.now - q[i].arrival;
        const duration aim = scheduler_.models().most_slack(model_id{m});
        const duration left = aim == unbounded ? q[i].deadline - to.now
                                               : std::min(q[i].deadline - to.now, aim - so_far);
        to.waiting.push_back({to.now, left, model_id{m}});
      }
    }
  }

  void take_answer(time_point now) noexcept {
    is_trying_ = false;
    const bool is_late = now - job_->start.now > 4 * tuner_.options().longest_period;
    if (is_void_ || is_late || job_->results.size() != job_->tried.size()) {
      ++rounds_.without_answer;
      return;
    }
    ++rounds_.judged;
    rounds_.cost += job_->cost;
    const settings before = tuner_.present();
    if (!tuner_.judge(job_->tried, job_->results, job_->arrived)) return;
    ++rounds_.changed;
    const settings& s = tuner_.present();
    const auto which = std::ranges::find(job_->tried, s) - job_->tried.begin();
    if (changes_.size() == most_changes) changes_.erase(changes_.begin());
    changes_.push_back({now, s, tuner_.why(), job_->results.front(),
                        job_->results[static_cast<std::size_t>(which)]});
    const adaptive_options p = s.policy();
    scheduler_.adopt(adaptive_window{p}, drop_head{}, adaptive_target{p}, adaptive_priority{p},
                     now);
    if (s.quantile != before.quantile) scheduler_.learn(s.learns(), now);
  }

  /// Marks the round in progress as invalid: models or devices have come or gone.
  void begin_anew() noexcept {
    if (is_trying_) runner_.cancel();
    is_void_ = true;
    tuner_.wake();
  }

  tuner tuner_;
  adaptive_scheduler scheduler_;
  load_watch load_;
  arrival_record record_{most_arrivals};
  time_point last_arrival_ = distant_past;
  std::unique_ptr<tuning_job> job_;
  Runner runner_;
  bool is_trying_ = false;
  bool is_void_ = false;  // The round in progress is for other models or devices.
  std::vector<std::optional<model_config>> models_;  // By id.
  std::vector<std::uint64_t> first_arrivals_;        // By id: arrivals recorded before the model.
  bool are_models_new_ = false;                      // The job lacks them.
  tuning_rounds rounds_;
  std::vector<settings_change> changes_;
  time_point next_ = never;
};

/// For virtual time.
using tuned_scheduler = basic_tuned_scheduler<>;
static_assert(foreseeing_scheduler<tuned_scheduler> && patient_scheduler<tuned_scheduler>);

}  // namespace cohort::deferred
