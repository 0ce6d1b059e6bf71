// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a staged pipeline in virtual time.
#pragma once

#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/recorder.hpp>
#include <cohort/sim/staged/stage_device.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// A request of a run: when it comes, and the class of its size.
struct staged_arrival {
  time_point at{};
  std::uint32_t bucket = 0;
};

/// How a staged run is made.
struct staged_run_options {
  bool parallel = false;  ///< Rows overlap on the device, by processor sharing.
  duration overhead{};    ///< Added to every item: the cost of a hand-over. At least 0.
  bool record_launches = false;
};

/// One item that ran, for traces.
struct staged_launch {
  time_point launched;
  time_point started;  ///< When the device took it: later than launched if it was busy.
  time_point ended;
  std::uint32_t stage;
  std::uint32_t lane;
  std::uint64_t order;
  std::uint32_t first;
  std::uint32_t count;
};

/// What happened in a staged run.
struct staged_result {
  std::vector<duration> latency;  ///< By arrival; `unbounded` for a request that failed.
  std::uint64_t completed = 0;
  std::uint64_t made = 0;          ///< Rows made.
  std::uint64_t stretched = 0;     ///< Stretches.
  std::uint64_t split = 0;         ///< Rows split.
  std::uint64_t held = 0;          ///< Hand-overs at which a row waited for stragglers.
  std::vector<double> mean_batch;  ///< By stage: mean requests of an item.
  time_point first_arrival{};
  time_point last_end{};
  std::vector<staged_launch> launches;

  [[nodiscard]] double mean_ms() const noexcept {
    double sum_ns = 0;  // Whole numbers: exact below 2^53.
    for (const duration d : latency) sum_ns += static_cast<double>(d.count());
    return latency.empty() ? 0 : sum_ns / (1e6 * static_cast<double>(latency.size()));
  }
  /// The latency that a part of the requests does not exceed, by nearest rank. @param part In (0,
  /// 1].
  [[nodiscard]] double percentile_ms(double part) const {
    std::vector<duration> sorted = latency;
    return to_ms(percentile(sorted, part));
  }
  /// The part of the requests that took longer than `slo`.
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

/// Counts what a pipeline does; hands every event on to nothing else.
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

/// Runs `arrivals`, in order of time, through a pipeline until all have ended. Within one instant
/// all arrivals come first, as one group, then what ends on the device, then windows; only then
/// work starts. Deterministic. O(log requests + stages) an event, and the policy's.
/// @param make_pipeline Called with a `staged_counts` observer; returns the pipeline.
/// @param progress Called with the current time now and then.
template <class MakePipeline, class Progress>
staged_result run_staged(const batching::stage_profile& profile,
                         std::span<const staged_arrival> arrivals, const staged_run_options& o,
                         MakePipeline&& make_pipeline, Progress&& progress) {
  auto p = make_pipeline(staged_counts{profile.stages()});
  stage_device device{o.parallel};
  staged_result result;
  result.latency.assign(arrivals.size(), unbounded);

  struct sink {
    const batching::stage_profile& profile;
    std::span<const staged_arrival> arrivals;
    const staged_run_options& options;
    stage_device& device;
    staged_result& result;
    time_point now{};

    void launch(const batching::stage_launch& l) {
      const std::uint32_t run = l.count - l.skipping();
      const duration t =
          (run > 0 ? profile.time(l.stage, run, l.bucket) : duration{}) + options.overhead;
      device.add({.lane = l.lane,
                  .stage = l.stage,
                  .order = l.order,
                  .first = l.first,
                  .work_ns = static_cast<double>(t.count()),
                  .share = profile.share(l.stage, std::max(1U, run), l.bucket)});
      if (options.record_launches) {
        result.launches.push_back({now, now, never, l.stage, l.lane, l.order, l.first, l.count});
      }
    }
    void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {}
    void end(const batching::staged_request& r, outcome how, time_point at) noexcept {
      if (how != outcome::completed) return;
      result.latency[r.tag] = at - arrivals[r.tag].at;
      result.last_end = std::max(result.last_end, at);
      ++result.completed;
    }
  } to{.profile = profile, .arrivals = arrivals, .options = o, .device = device, .result = result};

  std::vector<batching::staged_request> group;
  std::size_t next = 0;
  std::uint64_t events = 0;
  time_point free_at{};  // When a serial device last ended an item.
  for (;;) {
    const time_point now = std::min(
        {next < arrivals.size() ? arrivals[next].at : never, device.next(), p.next_wake()});
    if (now == never) break;
    to.now = now;
    group.clear();
    for (; next < arrivals.size() && arrivals[next].at == now; ++next) {
      group.push_back({.tag = next, .arrival = now, .bucket = arrivals[next].bucket});
    }
    p.on_arrival(group, now);
    device.advance(now, [&](const device_item& i) {
      if (o.record_launches) {
        for (auto& l : std::views::reverse(result.launches)) {
          if (l.lane == i.lane && l.stage == i.stage && l.ended == never) {
            l.ended = now;
            l.started = std::max(l.launched, o.parallel ? l.launched : free_at);
            break;
          }
        }
      }
      free_at = now;
      p.on_complete(i.lane, i.stage, now, to);
    });
    p.advance(now, to);
    device.start();
    if (++events % 4096 == 0) progress(now);
  }
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
