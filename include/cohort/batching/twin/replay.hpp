// SPDX-License-Identifier: Apache-2.0
/// @file
/// Drives a pipeline through arrivals in virtual time: `replay`.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/pipeline_sink.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/batching/twin/stage_device.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::batching {

/// A request of a run: when it comes, and the class of its size.
struct staged_arrival {
  time_point at{};
  std::uint32_t bucket = 0;
};

/// The simulated device of a replay.
struct replay_options {
  bool parallel = false;  ///< Rows overlap on the device, by processor sharing.
  duration overhead{};    ///< Added to every item: the cost of a hand-over. At least 0.
};

/// Ignores all events. Derive from it to watch some.
struct null_replay_watch {
  static void launched(const stage_launch&, time_point) noexcept {}
  static void finished(const device_item&, time_point) noexcept {}
  static void ended(const staged_request&, outcome, time_point) noexcept {}
  /// Called once an instant. @returns Whether to go on.
  static bool goes_on(time_point) noexcept { return true; }
};

/// Runs `arrivals`, in order of time, through a pipeline until all have ended, or the watch stops
/// the run; tags are positions in `arrivals`. Within one instant all arrivals come first, as one
/// group, then what ends on the device, then windows; only then work starts. Deterministic. O(log
/// requests + stages) an event, and the policy's.
/// @param p An empty pipeline.  @param profile That of the pipeline.
template <class Pipeline, class Watch>
void replay(Pipeline& p, const stage_profile& profile, std::span<const staged_arrival> arrivals,
            const replay_options& o, Watch& watch) {
  stage_device device{o.parallel};
  struct sink {
    const stage_profile& profile;
    const replay_options& options;
    stage_device& device;
    Watch& watch;
    time_point now{};

    void launch(const stage_launch& l) {
      const std::uint32_t run = l.count - l.skipping();
      const duration t =
          (run > 0 ? profile.time(l.stage, run, l.bucket) : duration{}) + options.overhead;
      device.add({.lane = l.lane,
                  .stage = l.stage,
                  .order = l.order,
                  .first = l.first,
                  .work_ns = static_cast<double>(t.count()),
                  .share = profile.share(l.stage, std::max(1U, run), l.bucket)});
      watch.launched(l, now);
    }
    void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) noexcept {}
    void end(const staged_request& r, outcome how, time_point at) noexcept {
      watch.ended(r, how, at);
    }
  } to{.profile = profile, .options = o, .device = device, .watch = watch};

  std::vector<staged_request> group;
  std::size_t next = 0;
  for (;;) {
    const time_point now = std::min(
        {next < arrivals.size() ? arrivals[next].at : never, device.next(), p.next_wake()});
    if (now == never || !watch.goes_on(now)) break;
    to.now = now;
    group.clear();
    for (; next < arrivals.size() && arrivals[next].at == now; ++next) {
      group.push_back({.tag = next, .arrival = now, .bucket = arrivals[next].bucket});
    }
    p.on_arrival(group, now);
    device.advance(now, [&](const device_item& i) {
      watch.finished(i, now);
      p.on_complete(i.lane, i.stage, now, to);
    });
    p.advance(now, to);
    device.start();
  }
}

}  // namespace cohort::batching
