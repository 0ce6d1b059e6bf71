// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run in virtual time with devices added and removed by an advisor.
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

/// Options of scaling.
struct scaling_options {
  deferred::autoscale_advisor::options advisor{};
  duration delay = std::chrono::seconds{60};  ///< Until a new device serves; at least 0.
  std::uint32_t devices = 1;                  ///< At the start; 1 to `limit`.
  std::uint32_t limit = 4096;                 ///< Maximum number of devices.
};

/// One window of measurements; the last may be shorter.
struct scaling_window {
  time_point end;
  double rate_rps = 0;
  double bad_rate = 0;
  double idle_fraction = 0;
  std::uint32_t devices = 0;  ///< Devices in service at its end,
  std::uint32_t asked = 0;    ///< and including those ordered.
};

struct scaling_result {
  run_result run;           ///< `busy_fraction` and `advice` refer to the initial devices.
  double device_hours = 0;  ///< In the measured part, of devices in service.
  std::vector<scaling_window> windows;
};

/// Runs a workload, except for its number of devices, under the scheduler that
/// `make(network_delays)` returns. The advisor sees what a server could tell it; requested devices
/// serve after the delay, released ones get no more work at once.
/// @throws config_error If an option is outside its range.
template <class Make, class Progress>
scaling_result run_autoscaled(workload w, const Make& make, const run_options& options,
                              const scaling_options& scaling, Progress&& progress) {
  expects(scaling.devices >= 1 && scaling.devices <= scaling.limit,
          "scaling_options: devices must be from 1 to limit");
  expects(scaling.delay >= duration{0}, "scaling_options: delay must be at least 0");
  demand_of_models demand{w};
  w.devices = scaling.devices;
  simulation s{w, make(w.told_delays()), options};
  std::uint32_t serving = scaling.devices;
  auto how = scaling.advisor;
  how.lead = scaling.delay;
  deferred::autoscale_advisor advisor{how};
  (void)advisor.advance(time_point{}, serving, {});

  scaling_result out;
  std::deque<std::pair<time_point, std::uint32_t>> coming;  // Time and number.
  std::uint32_t on_their_way = 0;
  const time_point begin = time_point{} + w.warmup;
  const time_point end = begin + w.measured;
  time_point since = begin;
  const auto count_until = [&](time_point now) {
    const time_point to = std::clamp(now, since, std::max(since, end));
    out.device_hours += to_seconds(to - since) / 3600 * serving;
    since = to;
  };
  const auto note = [&](time_point now, double seconds, const recent_events& r, double idle) {
    std::uint64_t arrived = 0;
    for (const std::uint64_t n : r.arrived) arrived += n;
    out.windows.push_back(
        {.end = now,
         .rate_rps = static_cast<double>(arrived) / seconds,
         .bad_rate = r.ended > 0 ? static_cast<double>(r.bad) / static_cast<double>(r.ended) : 0.0,
         .idle_fraction = idle,
         .devices = serving,
         .asked = serving + on_their_way});
  };
  const double window_s = to_seconds(how.window);
  time_point last_window{};
  for (;;) {
    const time_point now =
        std::min({advisor.window_end(), coming.empty() ? never : coming.front().first, end});
    s.run_until(now, progress);  // Devices continue even without arrivals.
    count_until(now);
    if (now == end && now != advisor.window_end()) {
      const double seconds = to_seconds(now - last_window);
      const recent_events r = s.take_recent();
      const double busy = to_seconds(r.busy) / (seconds * serving);
      if (seconds > 0) note(now, seconds, r, std::clamp(1 - busy, 0.0, 1.0));
      break;
    }
    if (!coming.empty() && coming.front().first == now) {
      serving += coming.front().second;
      on_their_way -= coming.front().second;
      coming.pop_front();
      s.set_devices(serving, now);
    }
    if (now != advisor.window_end()) continue;
    last_window = now;
    const recent_events r = s.take_recent();
    advisor.on_ends(r.ended, r.bad);
    advisor.on_busy(r.busy);
    (void)advisor.advance(now, serving, demand.at([&](std::size_t i) {
      return static_cast<double>(r.arrived[i]) / window_s;
    }));
    const deferred::autoscale_advice& a = advisor.advice();
    const std::int64_t wanted = std::clamp<std::int64_t>(serving + a.devices, 1, scaling.limit);
    while (serving + on_their_way > wanted && on_their_way > 0 && a.devices <= 0) {
      on_their_way -= coming.back().second;  // No longer needed.
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
    note(now, window_s, r, a.idle_fraction);
    if (now == end) break;
  }
  s.run_until(never, progress);
  out.run = s.result();
  return out;
}

}  // namespace cohort::sim
