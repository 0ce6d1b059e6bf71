// SPDX-License-Identifier: Apache-2.0
/// @file
/// A pipeline that chooses its policy by trying others on recent arrivals: `tuned_pipeline`.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/observer.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/pipeline_options.hpp>
#include <cohort/batching/pipeline_sink.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/batching/twin/policy_trials.hpp>
#include <cohort/batching/twin/replay.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::batching {

/// A pipeline that uses the policy which is best for recent arrivals: see `policy_trials`, which
/// run inside `advance`, in virtual time. It begins with the last policy. The first is the
/// reference, usually zero-batch: it is used from the first trial on unless another one is better.
/// Existing rows continue under a newly adopted policy. Deterministic. Thread safety: none.
/// Source: docs/batching/twin.md.
template <staging_policy Policy, batch_observer Observer = null_batch_observer>
class tuned_pipeline : public pipeline<Policy, Observer> {
  using base = pipeline<Policy, Observer>;

 public:
  /// @param candidates At least one.
  /// @param device The pipeline's device, for trials.
  /// @throws config_error If an option is outside its range, or there is no candidate.
  tuned_pipeline(const stage_profile& profile, const pipeline_options& o,
                 const std::vector<Policy>& candidates, const replay_options& device,
                 Observer obs = {})
      : base{profile, o, last_of(candidates), std::move(obs)},
        trials_{profile, o, candidates, candidates.size() - 1, device} {}

  [[nodiscard]] const policy_trials<Policy>& trials() const noexcept { return trials_; }

  /// As the pipeline's.
  std::size_t on_arrival(std::span<const staged_request> group, time_point now) {
    for (const staged_request& r : group) trials_.remember({now, r.bucket});
    return base::on_arrival(group, now);
  }
  /// As the pipeline's; tries policies first, if it is time to.
  template <pipeline_sink Sink>
  void advance(time_point now, Sink& sink) {
    if (trials_.is_due(this->waiting()) && trials_.choose(this->waiting())) {
      this->adopt(trials_.policy());
    }
    base::advance(now, sink);
  }

 private:
  static const Policy& last_of(const std::vector<Policy>& all) {
    expects(!all.empty(), "tuned_pipeline: candidates must be at least one");
    return all.back();
  }

  policy_trials<Policy> trials_;
};

}  // namespace cohort::batching
