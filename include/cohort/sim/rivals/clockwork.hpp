// SPDX-License-Identifier: Apache-2.0
/// @file
/// Clockwork's rule: batches are committed to devices ahead of time.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/indexed_heap.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/rivals/rival_queues.hpp>
#include <cohort/sim/rivals/rival_simulation.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace cohort::sim {

/// Keeps each device's schedule filled up to `ahead` from now. A model has a strategy with a latest
/// start for each batch size possible with its queue. Of those that the device free first can start
/// in time, the one with the earliest latest start is committed, and never changed. Requests that
/// cannot be in time on that device even alone are dropped. Source: Clockwork (OSDI 2020), section
/// 5, with its rules as described in Symphony, section 2. Left out: loading of models, as all are
/// on all devices; measured latencies, as profiles are exact here; the limit of batch sizes to
/// powers of two. Complexity: O(models · log batch + log devices) for each batch.
class clockwork {
 public:
  /// @param ahead At least 0. 0: a device gets a batch when it is free; above the SLOs: each
  /// request is committed on arrival.
  clockwork(const rival_facts& facts, duration ahead)
      : queues_{facts}, ahead_{ahead}, free_at_{facts.devices} {
    for (std::uint32_t d = 0; d < facts.devices; ++d) free_at_.set(d, distant_past);
  }

  template <class Orders>
  void on_arrival(request& r, Orders&) {
    queues_.push(r);
  }
  template <class Orders>
  void on_free(device_id d, Orders&) {
    free_at_.set(d.index(), distant_past);
  }
  template <class Orders>
  void decide(Orders& o) {
    const time_point now = o.now();
    for (;;) {
      const device_id d{free_at_.top()};
      const time_point free_at = o.free_at(d);
      if (free_at > free_at_.top_key()) {  // It takes longer than profiled.
        free_at_.set(d.index(), free_at);
        continue;
      }
      wake_ = never;
      if (free_at - ahead_ > now) {
        wake_ = has_requests() ? free_at - ahead_ : never;
        break;
      }
      if (!commit(d, std::max(now, free_at), o)) break;
    }
    queues_.drop_expired(o);
  }
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(wake_, queues_.next_expiry());
  }

 private:
  [[nodiscard]] bool has_requests() const noexcept { return queues_.next_expiry() != never; }

  /// @returns Whether there was a batch to commit.
  template <class Orders>
  bool commit(device_id d, time_point free_at, Orders& o) {
    model_id best{};
    std::uint32_t best_size = 0;
    time_point best_start = never;
    for (model_id m{0}; m.value() < queues_.models(); m = model_id{m.value() + 1}) {
      const auto& q = queues_[m];
      const deferred::reach r = queues_.reach(m, o.now(), free_at);
      while (!q.empty() && q.deadline(0) < r.finish(1)) queues_.drop(m, 1, o);
      if (q.empty()) continue;
      // Of a model's strategies the largest batch in time has the earliest latest start.
      const std::uint32_t size = std::min(q.size(), r.largest_by(q.deadline(0)));
      const time_point start = q.deadline(0) - queues_.facts(m).run(size);
      if (start < best_start) {
        best = m;
        best_size = size;
        best_start = start;
      }
    }
    if (best_size == 0) return false;
    o.run(d, best, queues_.pop(best, best_size));
    free_at_.set(d.index(), o.free_at(d));
    return true;
  }

  rival_queues queues_;
  duration ahead_;
  indexed_heap<time_point> free_at_;  // By device: by profiles.
  time_point wake_ = never;
};

}  // namespace cohort::sim
