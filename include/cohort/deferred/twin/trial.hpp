// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replays the most recent arrivals under other settings: `trial`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/latency_estimator.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/twin/arrival_record.hpp>
#include <cohort/deferred/twin/settings.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// The result of a trial.
struct trial_result {
  double bad = 0;        ///< Share of all requests late or dropped.
  double worst_bad = 0;  ///< The same for the worst model,
  /// and its number of requests; the fewest, if several are worst.
  std::uint64_t worst_requests = 0;
  double latency = 0;         ///< Mean, in seconds; a bad request counts as its deadline and more.
  std::uint32_t devices = 0;  ///< Number of devices that had work.
  std::uint64_t requests = 0;
};

/// Initial state of a trial, apart from its settings.
struct trial_start {
  time_point now;
  network_delays delays;
  std::vector<std::optional<model_config>> models;  ///< By id.
  std::vector<std::uint32_t> capacities;            ///< Capacities of the devices.
  std::vector<double> slowness;                     ///< Learned slowness of the devices.
  std::vector<duration>
      work;  ///< Time until each of their entries should be free, in order; 0 if idle.
  bool sends_ahead = true;                 ///< Like `basic_scheduler::send_ahead`.
  std::vector<recorded_arrival> waiting;   ///< Queued requests, as if they arrived `now`.
  std::vector<recorded_arrival> arrivals;  ///< Shifted so that the first is not before `now`.
  std::size_t unjudged =
      0;  ///< This many first arrivals are not judged, so that a change takes effect.
  std::uint64_t seed = 1;  ///< Seed of the noise; the same for all settings.
};

/// Adds models to an empty scheduler so that each gets its index as id; missing models leave a gap.
inline void add_models(adaptive_scheduler& s,
                       const std::vector<std::optional<model_config>>& models,
                       const network_delays& delays, time_point now) {
  struct {
    void dispatch(batch&&) noexcept {}
    void drop(request&) noexcept {}
  } nobody;
  const model_config least{.latency = latency_curve{linear_latency{duration{1}, duration{0}}, 1},
                           .slo = delays.before(1) + delays.after() + duration{1},
                           .queue_capacity = 1};
  std::vector<model_id> gaps;
  for (const auto& m : models) {
    const model_id id = s.add_model(m ? *m : least);
    if (!m) gaps.push_back(id);
  }
  for (const model_id id : gaps) s.remove_model(id, now, nobody);
}

/// Runs a scheduler on recorded arrivals, with devices that behave as learned: ratios to the
/// profile are drawn from the estimators. It starts with the running scheduler's measurements,
/// queued requests and device occupancy. The caller chooses the length of its steps. Deterministic.
/// Memory is kept from run to run. Cost: that of the scheduler. Thread safety: none.
class trial {
 public:
  trial() = default;
  /// Only while it does not run.
  trial(trial&& other)  // NOLINT(performance-noexcept-move-constructor): that of a deque may throw.
      : quantiles_{std::move(other.quantiles_)},
        pool_{std::move(other.pool_)},
        idle_{std::move(other.idle_)} {
    COHORT_ASSERT(!other.is_running());
  }
  trial& operator=(trial&&) = delete;
  ~trial() { abandon(); }

  /// Begins a run. @param start Must stay until the run has ended or is abandoned.
  void begin(const trial_start& start, const adaptive_scheduler& known, const settings& how) {
    abandon();
    const adaptive_options o = how.policy();
    state_.emplace(run_state{*this, start,
                             adaptive_scheduler{start.delays, adaptive_window{o}, drop_head{},
                                                adaptive_target{o}, adaptive_priority{o}}});
    state_->scheduler.learn(how.learns(), start.now);
    state_->scheduler.send_ahead(start.sends_ahead);
    state_->prepare(known);
  }
  /// Continues for at most this many instants. @returns Whether the run is over.
  [[nodiscard]] bool step(std::size_t instants) { return state_->go(instants); }
  [[nodiscard]] bool is_running() const noexcept { return state_.has_value(); }
  /// Ends a run that is over and returns its result.
  [[nodiscard]] trial_result take_result() noexcept {
    const trial_result r = state_->result();
    state_.reset();
    return r;
  }
  /// Ends a run early, if there is one.
  void abandon() noexcept {
    if (!state_) return;
    state_->release();  // Requests are kept from run to run.
    state_.reset();
  }
  /// Does a whole run.
  [[nodiscard]] trial_result run(const trial_start& start, const adaptive_scheduler& known,
                                 const settings& how) {
    begin(start, known, how);
    while (!step(SIZE_MAX)) {
    }
    return take_result();
  }

 private:
  /// An entry of a device.
  struct lane {
    std::array<batch, rank::entry_depth> batches;
    std::array<time_point, rank::entry_depth> ends{};
    std::uint32_t sent = 0;
    time_point free_at{};
  };
  struct device {
    std::uint32_t first_lane = 0;
    std::uint32_t capacity = 1;
    bool used = false;
  };
  struct tally {
    std::uint64_t arrived = 0;
    std::uint64_t bad = 0;
  };

  /// Uniform in [0, 1). Sebastiano Vigna's splitmix64.
  [[nodiscard]] static double uniform(std::uint64_t& state) noexcept {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1p-53;
  }

  struct run_state {
    trial& self;
    const trial_start& start;
    adaptive_scheduler scheduler;
    std::vector<device> devices{};
    std::vector<lane> lanes{};
    std::vector<device_entry> entries{};  // By lane.
    timer_queue ends{};
    std::vector<tally> models{};
    std::uint64_t random = start.seed;
    double latency = 0;
    time_point now = start.now;
    std::size_t next = 0;  // Index of the next arrival.

    void prepare(const adaptive_scheduler& known) {
      add_models(scheduler, start.models, start.delays, start.now);
      for (const std::uint32_t capacity : start.capacities) {
        const device_id id = scheduler.add_device(start.now, capacity);
        devices.push_back({static_cast<std::uint32_t>(entries.size()), capacity});
        for (std::uint32_t e = 0; e < capacity; ++e) entries.emplace_back(id, e);
      }
      lanes.resize(entries.size());
      ends.resize(entries.size());
      models.resize(start.models.size());
      for (const recorded_arrival& a : start.waiting) arrive(a, false);
      for (std::size_t i = 0; i < std::min(start.work.size(), entries.size()); ++i) {
        if (start.work[i] <= duration{0}) continue;
        const time_point until = start.now + start.work[i];
        scheduler.occupy(entries[i], until, start.now);
        lanes[i].sent = 1;
        lanes[i].ends[0] = lanes[i].free_at = until;
        ends.arm(i, until);
      }
      scheduler.assume(known, start.now);
      self.quantiles_.assign(start.models.size(), {});
      for (std::uint32_t i = 0; i < start.models.size(); ++i) {
        if (!start.models[i]) continue;
        const latency_estimator& l = known.models().latency(model_id{i}).batches();
        for (std::size_t k = 0; k < steps; ++k) {
          const double q = (static_cast<double>(k) + 0.5) / steps;
          self.quantiles_[i][k] = l.count() < 16 ? 1 : l.seen(q);
        }
      }
    }

    bool go(std::size_t instants) {
      for (; instants > 0; --instants) {
        const time_point arrival = next < start.arrivals.size() ? start.arrivals[next].at : never;
        const time_point next_event = std::min({arrival, ends.next(), scheduler.next_wake()});
        if (next_event == never) return true;
        now = std::max(now, next_event);  // Windows may have opened long ago.
        while (next < start.arrivals.size() && start.arrivals[next].at <= now) {
          arrive(start.arrivals[next], next >= start.unjudged);
          ++next;
        }
        for (std::uint32_t i; (i = ends.pop_due(now)) != timer_queue::none;) finish(i);
        scheduler.advance(now, *this);
      }
      return false;
    }

    void arrive(const recorded_arrival& a, bool counts) {
      if (a.model.index() >= start.models.size() || !start.models[a.model.index()]) return;
      if (counts) ++models[a.model.index()].arrived;
      if (self.idle_.empty()) {
        self.idle_.reserve(2 * self.pool_.size() + 64);  // So that later returns cannot throw.
        for (std::size_t n = self.pool_.size() + 64; self.pool_.size() < n;) {
          self.idle_.push_back(&self.pool_.emplace_back());
        }
      }
      request& r = *self.idle_.back();
      self.idle_.pop_back();
      r.model = a.model;
      r.arrival = now;
      r.deadline = now + a.slack;
      r.id = request_id{counts ? 1U : 0U};
      if (scheduler.models().is_full(a.model) ||
          !scheduler.models().is_feasible(a.model, r.deadline, now)) {
        end(r, false);
      } else {
        scheduler.on_arrival(r, now, *this);
      }
    }

    void end(request& r, bool in_time) noexcept {
      r.state = request_state::idle;
      self.idle_.push_back(&r);
      if (r.id == request_id{0}) return;
      const duration took = in_time ? now - r.arrival : 2 * (r.deadline - r.arrival);
      latency += to_seconds(took);
      if (!in_time) ++models[r.model.index()].bad;
    }

    void finish(std::uint32_t i) {
      lane& l = lanes[i];
      batch& b = l.batches[0];
      const bool was_taken_over = b.requests.empty();
      while (!b.requests.empty()) {
        request& r = b.requests.front();
        b.requests.pop_front();
        end(r, now + start.delays.response <= r.deadline);
      }
      std::swap(l.batches[0], l.batches[1]);
      l.ends[0] = l.ends[1];
      if (--l.sent > 0) ends.arm(i, l.ends[0]);
      scheduler.on_complete(entries[i], now, was_taken_over);
    }

    /// Ends all requests at once.
    void release() noexcept {
      for (lane& l : lanes) {
        for (; l.sent > 0; --l.sent) {
          for (request_list& b = l.batches[l.sent - 1].requests; !b.empty(); b.pop_front()) {
            end(b.front(), false);
          }
        }
      }
      for (std::uint32_t i = 0; i < start.models.size(); ++i) {
        const model_id m{i};
        if (scheduler.models().is_served(m)) scheduler.remove_model(m, now, *this);
      }
    }

    // The scheduler's sink.
    void dispatch(batch&& b) noexcept {
      device& d = devices[b.device.index()];
      d.used = true;
      const std::uint32_t i = d.first_lane + b.entry;
      lane& l = lanes[i];
      const double ratio =
          self.quantiles_[b.model.index()][static_cast<std::size_t>(uniform(random) * steps)] *
          scheduler.models().latency(b.model).batches().size_factor(b.size()) *
          start.slowness[b.device.index()] * d.capacity;
      const auto takes = static_cast<double>(b.work.count()) * ratio;
      const time_point begin = std::max(now + start.delays.before(b.size()), l.free_at);
      l.free_at = begin + duration{std::llround(takes)};
      l.ends[l.sent] = l.free_at;
      l.batches[l.sent++] = std::move(b);
      if (l.sent == 1) ends.arm(i, l.free_at);
    }
    void drop(request& r) noexcept { end(r, false); }

    [[nodiscard]] trial_result result() const {
      trial_result out;
      std::uint64_t bad = 0;
      for (const tally& m : models) {
        out.requests += m.arrived;
        bad += m.bad;
        // A prior for models with few requests: as if two more had been in time.
        if (m.arrived == 0) continue;
        const double share = static_cast<double>(m.bad) / static_cast<double>(m.arrived + 2);
        if (out.worst_requests == 0 || share > out.worst_bad ||
            (share == out.worst_bad && m.arrived < out.worst_requests)) {
          out.worst_bad = share;
          out.worst_requests = m.arrived;
        }
      }
      for (const device& d : devices) out.devices += d.used ? 1 : 0;
      if (out.requests == 0) return out;
      out.bad = static_cast<double>(bad) / static_cast<double>(out.requests);
      out.latency = latency / static_cast<double>(out.requests);
      return out;
    }
  };

  static constexpr std::size_t steps = 128;
  std::vector<std::array<double, steps>> quantiles_;  // By model.
  std::deque<request> pool_;
  std::vector<request*> idle_;
  std::optional<run_state> state_;  // The run in progress.
};

}  // namespace cohort::deferred
