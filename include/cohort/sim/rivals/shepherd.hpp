// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shepherd's rule: the largest batch first; a much larger one preempts a running one.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/rivals/rival_queues.hpp>
#include <cohort/sim/rivals/rival_simulation.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Each model has one candidate, the largest batch that is in time if it starts now, beginning with
/// the oldest request that can still be in time. A free device gets the largest candidate of all at
/// once. If none is free, the largest candidate preempts the smallest running batch if it is at
/// least `worth` times as large; the preempted work is lost, and its requests wait again. Source:
/// Shepherd (NSDI 2023), section 5 (Flex), with its rules as described in Symphony, section 2. Left
/// out: its planner, which divides models and devices into groups every few minutes (here all are
/// one group, the most flexible choice), and the time to stop a batch. Complexity: O(models · log
/// batch) a decision.
class shepherd {
 public:
  /// @param worth Above 1.
  explicit shepherd(const rival_facts& facts, double worth = 3)
      : queues_{facts}, worth_{worth}, running_(facts.devices) {
    for (std::uint32_t d = 0; d < facts.devices; ++d) free_.insert(d);
  }

  template <class Orders>
  void on_arrival(request& r, Orders&) {
    queues_.push(r);
  }
  template <class Orders>
  void on_free(device_id d, Orders&) {
    by_size_.erase({running_[d.index()], d.value()});
    free_.insert(d.value());
  }
  template <class Orders>
  void decide(Orders& o) {
    queues_.drop_expired(o);
    for (;;) {
      const auto [model, size] = largest(o);
      if (size == 0) return;
      if (free_.empty()) {
        if (by_size_.empty()) return;
        const auto [smallest, device] = *by_size_.begin();
        if (size < worth_ * smallest) return;
        request_list back = o.preempt(device_id{device});
        on_free(device_id{device}, o);
        start(device, model, size, o);
        while (!back.empty()) {
          request& r = back.front();
          back.pop_front();
          queues_.push(r);
        }
      } else {
        start(*free_.begin(), model, size, o);
      }
      queues_.drop_expired(o);
    }
  }
  [[nodiscard]] time_point next_wake() const noexcept { return queues_.next_expiry(); }

 private:
  template <class Orders>
  void start(std::uint32_t device, model_id m, std::uint32_t size, Orders& o) {
    free_.erase(device);
    o.run(device_id{device}, m, queues_.pop(m, size));
    running_[device] = size;
    by_size_.insert({size, device});
  }
  /// Among equals, the one with the earliest deadline.
  template <class Orders>
  [[nodiscard]] std::pair<model_id, std::uint32_t> largest(Orders& o) const {
    std::pair<model_id, std::uint32_t> best{model_id{}, 0};
    for (model_id m{0}; m.value() < queues_.models(); m = model_id{m.value() + 1}) {
      const auto& q = queues_[m];
      if (q.empty()) continue;
      const std::uint32_t size =
          std::min(q.size(), queues_.reach(m, o.now()).largest_by(q.deadline(0)));
      if (size == 0) continue;
      const bool is_earlier =
          size == best.second && q.deadline(0) < queues_[best.first].deadline(0);
      if (size > best.second || is_earlier) best = {m, size};
    }
    return best;
  }

  rival_queues queues_;
  double worth_;
  std::vector<std::uint32_t> running_;  // By device: the size of its batch.
  std::set<std::uint32_t> free_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_size_;  // Sizes and devices at work.
};

}  // namespace cohort::sim
