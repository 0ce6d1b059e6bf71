// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cellular batching in virtual time: requests join at every cell boundary, whatever their batch.
#pragma once

#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::sim {

/// Runs `arrivals` with a queue for each cell. When the device is free, it takes the cell of the
/// oldest unfinished request, with up to batch_max of the requests waiting there, the oldest first,
/// padded to the longest. A recurrent cell is run `steps[bucket]` times for a request, and requests
/// at different steps share a batch, which is its strength. One batch at a time. Deterministic.
/// O(waiting requests) an item.
/// @param profile Time of one step of each cell.
/// @param steps By stage and bucket: how often a request passes the cell; at least 1. Source: Gao
/// et al., "Low latency RNN inference with cellular batching", EuroSys 2018.
template <class Progress>
staged_result run_cellular(const batching::stage_profile& profile,
                           std::span<const staged_arrival> arrivals,
                           std::span<const std::vector<std::uint32_t>> steps, duration overhead,
                           Progress&& progress) {
  struct request {
    std::size_t tag;
    std::uint32_t stage;
    std::uint32_t left;  // Steps of that stage.
  };
  staged_result result;
  result.latency.assign(arrivals.size(), unbounded);
  std::vector<request> present;  // By arrival.
  std::vector<std::uint64_t> items(profile.stages());
  std::vector<std::uint64_t> members(profile.stages());
  std::size_t next = 0;
  std::uint64_t events = 0;
  time_point now{};
  while (next < arrivals.size() || !present.empty()) {
    if (present.empty()) now = std::max(now, arrivals[next].at);
    for (; next < arrivals.size() && arrivals[next].at <= now; ++next) {
      present.push_back({next, 0, steps[0][arrivals[next].bucket]});
    }
    const std::uint32_t stage = present.front().stage;
    std::uint32_t count = 0;
    std::uint32_t bucket = 0;
    bool fresh = false;
    for (const request& r : present) {
      if (r.stage != stage || count == profile.batch_max()) continue;
      ++count;
      bucket = std::max(bucket, arrivals[r.tag].bucket);
      fresh |= stage == 0 && r.left == steps[0][arrivals[r.tag].bucket];
    }
    now += profile.time(stage, count, bucket) + overhead;
    ++items[stage];
    members[stage] += count;
    if (fresh) ++result.made;
    std::uint32_t moved = 0;
    std::erase_if(present, [&](request& r) {
      if (r.stage != stage || moved == count) return false;
      ++moved;
      if (--r.left > 0) return false;
      if (++r.stage < profile.stages()) {
        r.left = steps[r.stage][arrivals[r.tag].bucket];
        return false;
      }
      result.latency[r.tag] = now - arrivals[r.tag].at;
      ++result.completed;
      return true;
    });
    if (++events % 4096 == 0) progress(now);
  }
  result.last_end = now;
  if (!arrivals.empty()) result.first_arrival = arrivals.front().at;
  for (std::uint32_t s = 0; s < profile.stages(); ++s) {
    result.mean_batch.push_back(
        items[s] == 0 ? 0 : static_cast<double>(members[s]) / static_cast<double>(items[s]));
  }
  return result;
}

}  // namespace cohort::sim
