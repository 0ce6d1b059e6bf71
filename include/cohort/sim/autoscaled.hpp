// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run in virtual time whose devices come and go as an advisor says.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/autoscale.hpp>
#include <cohort/sim/demand.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace cohort::sim {

/// How advice is taken.
struct scaling_options {
  deferred::autoscale_advisor::options advisor{};
  duration delay = std::chrono::seconds{60};  ///< From advice to a device that serves; at least 0.
  std::uint32_t devices = 1;                  ///< At the start; 1 to `limit`.
  std::uint32_t limit = 4096;                 ///< Most that there ever are.
};

/// One window of measurements.
struct scaling_window {
  time_point end;
  double rate_rps = 0;
  double bad_rate = 0;
  double idle_fraction = 0;
  std::uint32_t devices = 0;  ///< That served at its end,
  std::uint32_t asked = 0;    ///< and with those that are on their way.
};

struct scaling_result {
  run_result run;
  double device_hours = 0;  ///< Of the measured part, of devices that served.
  std::vector<scaling_window> windows;
};

/// Runs a workload, whose own number of devices does not matter, under the scheduler that
/// `make(network_delays)` returns. The advisor is told what a server could tell it; devices that it
/// asks for serve after the delay, those that it releases get no more work from then on.
/// @throws config_error If an option is outside its range.
template <class Make, class Progress>
scaling_result run_autoscaled(workload w, const Make& make, const run_options& options,
                              const scaling_options& scaling, Progress&& progress) {
  expects(scaling.devices >= 1 && scaling.devices <= scaling.limit,
          "scaling_options: devices must be from 1 to limit");
  expects(scaling.delay >= duration{0}, "scaling_options: delay must be at least 0");
  demand_of_models demand{w};
  // A device that is released keeps its place until it has ended what it has.
  w.devices = 2 * scaling.limit;
  simulation s{w, make(w.told_delays()), options};
  std::uint32_t serving = scaling.devices;
  s.set_devices(serving, time_point{});
  auto how = scaling.advisor;
  how.lead = scaling.delay;
  deferred::autoscale_advisor advisor{how};
  (void)advisor.advance(time_point{}, serving, {});

  scaling_result out;
  std::deque<std::pair<time_point, std::uint32_t>> coming;  // When, and how many.
  std::uint32_t on_their_way = 0;
  const time_point begin = time_point{} + w.warmup;
  const time_point end = begin + w.measured;
  time_point since = begin;
  const auto count_until = [&](time_point now) {
    const time_point to = std::clamp(now, since, std::max(since, end));
    out.device_hours += to_seconds(to - since) / 3600 * serving;
    since = to;
  };
  for (;;) {
    const time_point now =
        std::min(advisor.window_end(), coming.empty() ? never : coming.front().first);
    if (!s.run_until(now, progress)) break;
    count_until(now);
    if (!coming.empty() && coming.front().first == now) {
      serving += coming.front().second;
      on_their_way -= coming.front().second;
      coming.pop_front();
      s.set_devices(serving, now);
    }
    if (now != advisor.window_end()) continue;
    const recent_events r = s.take_recent();
    std::uint64_t arrived = 0;
    for (const std::uint64_t n : r.arrived) arrived += n;
    advisor.on_ends(r.ended, r.bad);
    advisor.on_busy(r.busy);
    const double seconds = to_seconds(how.window);
    (void)advisor.advance(now, serving, demand.at([&](std::size_t i) {
      return static_cast<double>(r.arrived[i]) / seconds;
    }));
    const deferred::autoscale_advice& a = advisor.advice();
    const std::int64_t wanted = std::clamp<std::int64_t>(serving + a.devices, 1, scaling.limit);
    while (serving + on_their_way > wanted && on_their_way > 0 && a.devices <= 0) {
      on_their_way -= coming.back().second;  // Not needed any more.
      coming.pop_back();
    }
    if (wanted > serving + on_their_way) {
      const auto more = static_cast<std::uint32_t>(wanted) - serving - on_their_way;
      coming.emplace_back(now + scaling.delay, more);
      on_their_way += more;
    } else if (wanted < serving) {
      serving = static_cast<std::uint32_t>(wanted);
      s.set_devices(serving, now);
    }
    out.windows.push_back({.end = now,
                           .rate_rps = static_cast<double>(arrived) / seconds,
                           .bad_rate = a.bad_rate,
                           .idle_fraction = a.idle_fraction,
                           .devices = serving,
                           .asked = serving + on_their_way});
  }
  count_until(end);
  out.run = s.result();
  return out;
}

}  // namespace cohort::sim
