// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides whether an engine accepts a request: `admission`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/device_half.hpp>
#include <cohort/engine/early_refusal.hpp>
#include <cohort/engine/model_lives.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace cohort::engine {

/// Decides whether to refuse a request and why: first from the state of the request, its model and
/// its devices, then whether it would be late, by `early_refusal` and the outlook of a
/// `foreseeing_scheduler`. With other schedulers no request is refused early. A value. Cost: that
/// of both. Thread safety: none.
///
/// @tparam Scheduler A scheduler, or its half that sees requests.
template <deferred::requirement::scheduler_answers_for_models Scheduler>
class admission {
  static constexpr bool foresees = deferred::requirement::scheduler_foresees<Scheduler>;

 public:
  /// @param response Delay from the end of a batch until deadlines are judged.
  /// @throws config_error If an option is outside its range.
  admission(const refusal_options& o, duration response) : refusal_{o}, response_{response} {}

  /// Refuses every request from now on.
  void drain() noexcept { draining_ = true; }
  [[nodiscard]] bool is_draining() const noexcept { return draining_; }

  void add_model(model_id id, duration slo, deferred::pool_id pool) {
    refusal_.add_model(id, slo, pool);
  }
  /// Returns why the request is refused, if it is. If it would be late, sets its `retry_after` and
  /// tells the scheduler.
  [[nodiscard]] std::optional<refusal> refuses(request& r, Scheduler& scheduler,
                                               const model_lives& models,
                                               const device_half& devices,
                                               time_point now) noexcept {
    if (draining_) return refusal::draining;
    if (!models.is_accepting(r.model)) return refusal::unknown_model;
    if (r.size > models[r.model].max_request_size) return refusal::too_big;
    if (devices.hands_back(models[r.model].pool)) return refusal::no_device;
    if (devices.is_suspended(r.model, now)) return refusal::model_suspended;
    return refuses_to_queue(r, scheduler, now);
  }
  /// The remaining check: whether waiting requests of its model rule it out.
  [[nodiscard]] std::optional<refusal> refuses_to_queue(request& r, Scheduler& scheduler,
                                                        time_point now) noexcept {
    if (scheduler.models().is_full(r.model)) return refusal::queue_full;
    if (!scheduler.models().is_feasible(r.model, r.deadline, now)) {
      return refusal::deadline_infeasible;
    }
    if (would_be_late(r, scheduler, now)) return refusal::overloaded;
    return std::nullopt;
  }
  void note_batch(const deferred::batch& b, const Scheduler& scheduler, time_point now) noexcept {
    if constexpr (foresees) {
      const auto& models = scheduler.models();
      const latency_curve& run = models.latency(b.model).run();
      const duration until_first_deadline = b.latest - b.exec_at + run(b.size());
      refusal_.on_batch(b.model, b.size(), run.largest_within(until_first_deadline),
                        models.queued_requests(b.model), now);
    }
  }
  void note_drop(const request& r, const Scheduler& scheduler, time_point now) noexcept {
    if constexpr (foresees) {
      refusal_.on_drop(r.model, scheduler.models().queued_requests(r.model), now);
    }
  }

 private:
  /// Whether an otherwise acceptable request would be late.
  [[nodiscard]] bool would_be_late(request& r, Scheduler& scheduler, time_point now) noexcept {
    if constexpr (foresees) {
      if (!refusal_.is_overloaded(r.model, now)) return false;
      const time_point start = scheduler.next_free(r.model);
      if (start == distant_past) return false;
      const auto& models = scheduler.models();
      const std::uint32_t target = models.target(r.model);
      const duration until_start =
          start == never ? unbounded : start - now - models.usual_excess(r.model, target);
      const std::optional<duration> retry_after =
          refusal_.judge(r.model,
                         {.ahead = models.queued_requests(r.model),
                          .target = target,
                          .batch = models.latency(r.model).sent()(target),
                          .slack = r.deadline - now - response_,
                          .until_a_start = std::max(duration{0}, until_start)},
                         now);
      if (!retry_after) return false;
      r.retry_after = *retry_after;
      scheduler.on_refused(r, now);
      return true;
    } else {
      return false;
    }
  }

  early_refusal refusal_;
  duration response_;
  bool draining_ = false;
};

}  // namespace cohort::engine
