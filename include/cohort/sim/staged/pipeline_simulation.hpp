// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a staged pipeline in virtual time.
#pragma once

#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/batching/twin/replay.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/recorder.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::sim {

using batching::staged_arrival;

/// Options of a staged run.
struct staged_run_options {
  bool parallel = false;  ///< Rows overlap on the device, by processor sharing.
  duration overhead{};    ///< Added to every item: the cost of a hand-over. At least 0.
  bool record_launches = false;
};

/// One item that ran, for traces.
struct staged_launch {
  time_point launched;
  time_point started;  ///< When the device took it: later than launched if busy.
  time_point ended;
  std::uint32_t stage;
  std::uint32_t lane;
  std::uint64_t order;
  std::uint32_t first;
  std::uint32_t count;
};

/// Measurements of a staged run.
struct staged_result {
  std::vector<duration> latency;  ///< By arrival; `unbounded` for a request that failed.
  std::uint64_t completed = 0;
  std::uint64_t made = 0;          ///< Rows made.
  std::uint64_t stretched = 0;     ///< Stretches.
  std::uint64_t split = 0;         ///< Rows split.
  std::uint64_t held = 0;          ///< Hand-overs when a row waited for stragglers.
  std::vector<double> mean_batch;  ///< By stage: mean requests of an item.
  time_point first_arrival{};
  time_point last_end{};
  std::vector<staged_launch> launches;

  [[nodiscard]] double mean_ms() const noexcept {
    double sum_ns = 0;  // Whole numbers: exact below 2^53.
    for (const duration d : latency) sum_ns += static_cast<double>(d.count());
    return latency.empty() ? 0 : sum_ns / (1e6 * static_cast<double>(latency.size()));
  }
  /// The latency that this part of the requests does not exceed, by nearest rank. @param part In
  /// (0, 1].
  [[nodiscard]] double percentile_ms(double part) const {
    std::vector<duration> sorted = latency;
    return to_ms(percentile(sorted, part));
  }
  /// Fraction of the requests that took longer than `slo`.
  [[nodiscard]] double bad_rate(duration slo) const noexcept {
    if (latency.empty()) return 0;
    const auto late = std::ranges::count_if(latency, [&](duration d) { return d > slo; });
    return static_cast<double>(late) / static_cast<double>(latency.size());
  }
  /// Completed requests a second, from the first arrival to the last end.
  [[nodiscard]] double throughput_rps() const noexcept {
    const double s = to_seconds(last_end - first_arrival);
    return s > 0 ? static_cast<double>(completed) / s : 0;
  }
};

/// Counts the events of a pipeline and does not pass them on.
struct staged_counts : batching::null_batch_observer {
  std::uint64_t made_rows = 0;
  std::uint64_t stretches = 0;
  std::uint64_t splits = 0;
  std::uint64_t holds = 0;
  std::vector<std::uint64_t> items;
  std::vector<std::uint64_t> requests;

  explicit staged_counts(std::uint32_t stages = 0) : items(stages), requests(stages) {}
  void made(const batching::batch_row&, time_point) noexcept { ++made_rows; }
  void stretched(const batching::batch_row&, std::uint32_t, time_point) noexcept { ++stretches; }
  void split(const batching::batch_row&, std::uint32_t, time_point) noexcept { ++splits; }
  void held(const batching::batch_row&, std::uint32_t, time_point) noexcept { ++holds; }
  void launched(const batching::batch_row&, std::uint32_t stage, const batching::item& i,
                time_point) noexcept {
    ++items[stage];
    requests[stage] += i.count;
  }
};

/// Runs `arrivals`, in order of time, through a pipeline until all have ended: see
/// `batching::replay`.
/// @param make_pipeline Called with a `staged_counts` observer; returns the pipeline.
/// @param progress Called with the current time now and then.
template <class MakePipeline, class Progress>
staged_result run_staged(const batching::stage_profile& profile,
                         std::span<const staged_arrival> arrivals, const staged_run_options& o,
                         MakePipeline&& make_pipeline, Progress&& progress) {
  auto p = make_pipeline(staged_counts{profile.stages()});
  staged_result result;
  result.latency.assign(arrivals.size(), unbounded);

  struct staged_recorder : batching::null_replay_watch {
    std::span<const staged_arrival> arrivals;
    const staged_run_options& options;
    staged_result& result;
    std::remove_reference_t<Progress>& progress;
    std::uint64_t events = 0;
    time_point free_at{};  // When a serial device last ended an item.

    staged_recorder(std::span<const staged_arrival> all, const staged_run_options& with,
                    staged_result& into, std::remove_reference_t<Progress>& tell)
        : arrivals{all}, options{with}, result{into}, progress{tell} {}

    void launched(const batching::stage_launch& l, time_point now) {
      if (!options.record_launches) return;
      result.launches.push_back({now, now, never, l.stage, l.lane, l.order, l.first, l.count});
    }
    void finished(const batching::device_item& i, time_point now) {
      if (options.record_launches) {
        for (auto& l : std::views::reverse(result.launches)) {
          if (l.lane == i.lane && l.stage == i.stage && l.ended == never) {
            l.ended = now;
            l.started = std::max(l.launched, options.parallel ? l.launched : free_at);
            break;
          }
        }
      }
      free_at = now;
    }
    void ended(const batching::staged_request& r, outcome how, time_point at) noexcept {
      if (how != outcome::completed) return;
      result.latency[r.tag] = at - arrivals[r.tag].at;
      result.last_end = std::max(result.last_end, at);
      ++result.completed;
    }
    bool goes_on(time_point now) {
      if (++events % 4096 == 0) progress(now);
      return true;
    }
  } watch{arrivals, o, result, progress};
  batching::replay(p, profile, arrivals, {.parallel = o.parallel, .overhead = o.overhead}, watch);

  const staged_counts& counts = p.observer();
  result.made = counts.made_rows;
  result.stretched = counts.stretches;
  result.split = counts.splits;
  result.held = counts.holds;
  for (std::uint32_t s = 0; s < profile.stages(); ++s) {
    result.mean_batch.push_back(counts.items[s] == 0 ? 0
                                                     : static_cast<double>(counts.requests[s]) /
                                                           static_cast<double>(counts.items[s]));
  }
  if (!arrivals.empty()) result.first_arrival = arrivals.front().at;
  return result;
}

}  // namespace cohort::sim
