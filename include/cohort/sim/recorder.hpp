// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collects and summarises the events of a run.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/autoscale.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/sim/demand.hpp>
#include <cohort/sim/request_pool.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::sim {

/// The value at rank ⌈q n⌉ of n values (nearest rank), 0 if there are none. Reorders them.
template <class T>
[[nodiscard]] T percentile(std::vector<T>& values, double q) {
  if (values.empty()) return T{};
  const double position = std::ceil(q * static_cast<double>(values.size()));
  const auto at = static_cast<std::ptrdiff_t>(std::max(1.0, position)) - 1;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

/// The measurements of one run, for requests that arrive from `warmup` to `warmup + measured`.
class recorder {
 public:
  recorder(const workload& w, double rate, bool record_dispatches)
      : workload_{w},
        begin_{time_point{} + w.warmup},
        end_{begin_ + w.measured},
        record_dispatches_{record_dispatches},
        per_model_(w.models.size()),
        used_(w.devices, false) {
    const std::vector<double> part = w.normalised_shares();
    for (std::size_t i = 0; i < part.size(); ++i) per_model_[i].offered = part[i] * rate;
    for (const model_spec& m : w.models) longest_slo_ = std::max(longest_slo_, m.slo);
  }

  [[nodiscard]] time_point end() const noexcept { return end_; }
  /// Measured requests that have not ended.
  [[nodiscard]] std::uint64_t open() const noexcept { return open_; }
  /// Whether nothing is left to measure at `now`, the next instant with an event.
  /// @throws lost_request If a measured request can no longer end: no event is left, or long after
  /// the measured part no measured request runs or ends.
  [[nodiscard]] bool is_over(time_point now, const request_pool& requests) const {
    if (now < end_) return false;
    if (open_ == 0) return true;
    const bool is_patient = longest_slo_ < unbounded / 200;
    const duration patience =
        is_patient ? 100 * longest_slo_ + std::chrono::seconds{10} : unbounded;
    if (now - std::max(end_, last_progress_) <= patience) return false;
    const request* const r = requests.oldest_open();
    if (r == nullptr) throw lost_request{"simulation: a request ended more than once"};
    throw lost_request{
        "simulation: the request of model \"" + workload_.models[r->model.index()].name +
        "\" that arrived at " +
        std::to_string(r->arrival.time_since_epoch() / std::chrono::microseconds{1}) +
        " us never ends"};
  }

  void arrived(model_id m, time_point now) {
    ++simulated_;
    if (!is_measured(now)) return;
    ++per_model_[m.index()].arrived;
    ++open_;
  }

  /// @param on Instead of the batch's device.
  void launched(const deferred::batch& b, time_point now, time_point start, time_point finish,
                std::optional<device_id> on = {}) {
    const device_id device = on.value_or(b.device);
    busy_ += std::max(duration{0}, std::min(finish, end_) - std::max(start, begin_));
    if (is_measured(now)) {
      per_model_[b.model.index()].batches.push_back(b.size());
      used_[device.index()] = true;
    }
    for (const request& r : b.requests) {
      if (!is_measured(r.arrival)) continue;
      if (finish != never) last_progress_ = std::max(last_progress_, finish);
      if (start != never && r.attempts == 0) queueing_.push_back(to_ms(start - r.arrival));
    }
    if (!record_dispatches_) return;
    dispatch_record d{.at = now,
                      .device = device.value(),
                      .model = b.model.value(),
                      .size = b.size(),
                      .first = b.first_sequence,
                      .exec_at = start,
                      .latest = b.latest,
                      .finish = finish,
                      .requests = {}};
    for (const request& r : b.requests) d.requests.push_back(r.sequence);
    dispatches_.push_back(std::move(d));
  }

  /// Notes that a batch was preempted which began at `start` and would have run until `finish`.
  void preempted(device_id d, time_point now, time_point start, time_point finish) {
    busy_ -= std::max(duration{0}, std::min(finish, end_) - std::max({now, start, begin_}));
    const auto last = std::ranges::find(dispatches_.rbegin(), dispatches_.rend(), d.value(),
                                        &dispatch_record::device);
    if (last != dispatches_.rend()) last->finish = now;
  }
  /// Makes room for device ids below this.
  void expect_devices(std::size_t most) { used_.resize(std::max(most, used_.size()), false); }

  void ended(const request& r, outcome how, time_point at) {
    if (!is_measured(r.arrival)) return;
    tally& t = per_model_[r.model.index()];
    --open_;
    last_progress_ = std::max(last_progress_, at);
    switch (how) {
      case outcome::completed:
        ++t.completed;
        break;
      case outcome::late:
        ++t.late;
        break;
      case outcome::refused:
        ++t.refused;
        break;
      case outcome::dropped:
      case outcome::cancelled:
      case outcome::failed:
        ++t.dropped;
        break;
    }
    const bool ran = how == outcome::completed || how == outcome::late;
    t.latencies.push_back(ran ? to_ms(at - r.arrival) : infinitely_late);
  }

  /// Summarises; the recorder cannot be used further.
  [[nodiscard]] run_result result() {
    run_result out;
    std::vector<double> latencies;
    std::vector<std::uint32_t> batches;
    const double seconds = to_seconds(workload_.measured);
    const bool has_constant_rate =
        workload_.arrivals != arrival_process::trace && workload_.load.empty();
    for (std::size_t i = 0; i < per_model_.size(); ++i) {
      tally& t = per_model_[i];
      const std::uint64_t open = t.arrived - t.latencies.size();
      t.latencies.resize(t.arrived, infinitely_late);
      model_result m{
          .name = workload_.models[i].name,
          .offered_rps = has_constant_rate ? t.offered : static_cast<double>(t.arrived) / seconds,
          .arrived = t.arrived,
          .completed = t.completed,
          .late = t.late,
          .dropped = t.dropped,
          .refused = t.refused,
          .open = open};
      if (t.arrived > 0) {
        m.bad_rate = static_cast<double>(t.arrived - t.completed) / static_cast<double>(t.arrived);
      }
      latencies.insert(latencies.end(), t.latencies.begin(), t.latencies.end());
      batches.insert(batches.end(), t.batches.begin(), t.batches.end());
      m.p99_ms = percentile(t.latencies, 0.99);
      m.batch_p50 = percentile(t.batches, 0.5);
      out.offered_rps += m.offered_rps;
      out.arrived += m.arrived;
      out.completed += m.completed;
      out.late += m.late;
      out.dropped += m.dropped;
      out.refused += m.refused;
      out.open += m.open;
      out.per_model.push_back(std::move(m));
    }
    if (out.arrived > 0) {
      out.bad_rate =
          static_cast<double>(out.arrived - out.completed) / static_cast<double>(out.arrived);
    }
    out.throughput_rps = static_cast<double>(out.completed) / seconds;
    out.busy_fraction = to_seconds(busy_) / (seconds * workload_.devices);
    out.devices_used = static_cast<std::uint32_t>(std::count(used_.begin(), used_.end(), true));
    if (!batches.empty()) {
      out.batch_mean =
          static_cast<double>(std::accumulate(batches.begin(), batches.end(), std::uint64_t{0})) /
          static_cast<double>(batches.size());
    }
    out.batch_p50 = percentile(batches, 0.5);
    out.batch_p90 = percentile(batches, 0.9);
    out.queueing_p50_ms = percentile(queueing_, 0.5);
    out.queueing_p99_ms = percentile(queueing_, 0.99);
    out.queueing_max_ms = percentile(queueing_, 1.0);
    out.latency_p50_ms = percentile(latencies, 0.5);
    out.latency_p90_ms = percentile(latencies, 0.9);
    out.latency_p99_ms = percentile(latencies, 0.99);
    std::erase(latencies, infinitely_late);
    out.served_p50_ms = percentile(latencies, 0.5);
    out.served_p90_ms = percentile(latencies, 0.9);
    out.served_p99_ms = percentile(latencies, 0.99);
    out.advice = advice(out, seconds);
    out.dispatches = std::move(dispatches_);
    out.simulated_requests = simulated_;
    return out;
  }

 private:
  [[nodiscard]] deferred::autoscale_advice advice(const run_result& r, double seconds) const {
    deferred::autoscale_advice a{.bad_rate = r.bad_rate, .idle_fraction = 1 - r.busy_fraction};
    demand_of_models demand{workload_};
    const auto rate = [&](std::size_t i) {
      return static_cast<double>(r.per_model[i].arrived) / seconds;
    };
    a.devices = -std::int64_t{workload_.devices};
    if (workload_.pools.empty()) a.devices += deferred::devices_needed(demand.at(rate));
    for (const pool_spec& p : workload_.pools) {
      a.devices += deferred::devices_needed(demand.at([&](std::size_t i) {
        return std::ranges::find(p.models, i) != p.models.end() ? rate(i) : 0.0;
      }));
    }
    if (r.bad_rate > 0.01) a.devices = std::max<std::int64_t>(a.devices, 1);
    return a;
  }

  struct tally {
    double offered = 0;
    std::uint64_t arrived = 0;
    std::uint64_t completed = 0;
    std::uint64_t late = 0;
    std::uint64_t dropped = 0;
    std::uint64_t refused = 0;
    std::vector<double> latencies;  // For each ended request.
    std::vector<std::uint32_t> batches;
  };

  [[nodiscard]] bool is_measured(time_point t) const noexcept { return t >= begin_ && t < end_; }

  const workload& workload_;
  time_point begin_;
  time_point end_;
  bool record_dispatches_;
  std::vector<tally> per_model_;
  std::vector<bool> used_;
  std::vector<double> queueing_;
  std::vector<dispatch_record> dispatches_;
  duration busy_{0};
  duration longest_slo_{0};
  time_point last_progress_{};  // Last end of a measured request or its batch.
  std::uint64_t open_ = 0;
  std::uint64_t simulated_ = 0;
};

}  // namespace cohort::sim
