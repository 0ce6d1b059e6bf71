// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues of models, shared by the rivals.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/sim/rivals/rival_simulation.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Like `push`, but doubles the capacity of a full queue.
inline void push_growing(deferred::request_queue& q, request& r, time_point deadline) {
  if (q.is_full()) {
    deferred::request_queue larger{2 * q.capacity()};
    while (!q.empty()) {
      const time_point first = q.deadline(0);
      larger.push(q.pop(), first);
    }
    q = std::move(larger);
  }
  q.push(r, deadline);
}

/// The waiting requests of each model by deadline, and when the first of them can no longer be in
/// time. Queues grow as needed.
class rival_queues {
 public:
  /// @param facts Must outlive it.
  explicit rival_queues(const rival_facts& facts) : facts_{&facts}, expiry_{facts.models.size()} {
    for (std::size_t i = 0; i < facts.models.size(); ++i) queues_.emplace_back(64U);
  }

  void push(request& r) {
    push_growing(queues_[r.model.index()], r, r.deadline - facts_->after);
    watch(r.model);
  }
  /// The first `count` requests.
  [[nodiscard]] request_list pop(model_id m, std::uint32_t count) {
    request_list out;
    for (std::uint32_t i = 0; i < count; ++i) out.push_back(queues_[m.index()].pop());
    watch(m);
    return out;
  }
  template <class Orders>
  void drop(model_id m, std::uint32_t count, Orders& o) {
    for (std::uint32_t i = 0; i < count; ++i) o.drop(queues_[m.index()].pop());
    watch(m);
  }
  /// Drops requests that cannot be in time even alone and at once.
  template <class Orders>
  void drop_expired(Orders& o) {
    for (std::uint32_t m; (m = expiry_.pop_due(o.now())) != timer_queue::none;) {
      drop(model_id{m}, 1, o);
    }
  }
  /// When `drop_expired` has something to do next.
  [[nodiscard]] time_point next_expiry() const noexcept { return expiry_.next(); }

  [[nodiscard]] const deferred::request_queue& operator[](model_id m) const noexcept {
    return queues_[m.index()];
  }
  [[nodiscard]] std::uint32_t models() const noexcept {
    return static_cast<std::uint32_t>(queues_.size());
  }
  [[nodiscard]] const rival_model& facts(model_id m) const noexcept {
    return facts_->models[m.index()];
  }
  /// When batches end if sent at `now` to a device that is free at `free_at`.
  [[nodiscard]] deferred::reach reach(model_id m, time_point now,
                                      time_point free_at = distant_past) const noexcept {
    return {facts(m).run, facts(m).sent, now, free_at};
  }

 private:
  /// Just after its latest start: at that time it may still run.
  void watch(model_id m) {
    const deferred::request_queue& q = queues_[m.index()];
    expiry_.arm(m.index(), q.empty() ? never : q.deadline(0) - facts(m).sent(1) + duration{1});
  }

  const rival_facts* facts_;
  std::vector<deferred::request_queue> queues_;
  timer_queue expiry_;
};

}  // namespace cohort::sim
