// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds which of several policies would have served the latest arrivals best: `policy_trials`.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/pipeline_options.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/batching/twin/replay.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::batching {

/// Replays recent arrivals with each policy in virtual time, using the profile, and reports the
/// best one.
///
/// A full round replays the last arrivals, a hundred or more of the largest batches and at least
/// 2048 requests, and starts with the present number of waiting requests. The first round comes
/// after 8 arrivals, the next ones when those have doubled, until they are full; while arrivals are
/// few, a round runs through them up to eight times. Further full rounds come after that many new
/// arrivals each, and less and less often, down to every eighth time, while the answer stays the
/// same. The scores restart if the rate changes by more than a quarter for 512 arrivals. A score is
/// the mean latency relative to the first policy's, over the last eight full rounds. Another policy
/// is adopted if it is better by half a per cent and by two standard errors (three while rounds are
/// not full). The initial policy stays after the first round if it is better than the reference by
/// half a per cent.
///
/// A policy may do well from an empty queue but not once a queue has grown. So a queue more than
/// twice as long as any in its trial triggers a round at once, which counts alone. A policy
/// abandoned for that reason is barred for a while; the time doubles each time. Cost: `remember`
/// O(1) amortised; a round some tenths of a microsecond for each request, stage and policy.
/// Deterministic. Thread safety: none.
template <staging_policy Policy>
class policy_trials {
 public:
  /// @param profile Must outlive this object.  @param candidates At least one; the first is the
  ///         reference.
  /// @param present The policy to start with.
  /// @throws config_error If there is no such candidate.
  policy_trials(const stage_profile& profile, const pipeline_options& o,
                std::vector<Policy> candidates, std::size_t present, const replay_options& device)
      : profile_{&profile},
        options_{o},
        device_{device},
        full_{std::max<std::size_t>(2048, std::size_t{128} * profile.batch_max())},
        next_{smallest},
        present_{present} {
    expects(present < candidates.size(), "policy_trials: present must be one of the candidates");
    for (Policy& p : candidates) all_.push_back({.policy = std::move(p)});
    options_.max_waiting = static_cast<std::uint32_t>(2 * full_);
  }

  [[nodiscard]] const Policy& policy() const noexcept { return all_[present_].policy; }
  /// Index of the policy in use.
  [[nodiscard]] std::size_t present() const noexcept { return present_; }
  [[nodiscard]] std::uint64_t rounds() const noexcept { return rounds_; }

  /// Instants must not decrease.
  void remember(const staged_arrival& a) {
    if (record_.size() == 2 * full_) {
      record_.erase(record_.begin(), record_.begin() + static_cast<std::ptrdiff_t>(full_));
    }
    record_.push_back(a);
    ++unseen_;
    ++arrived_;
    if (++in_block_ == block) watch_rate();
  }
  /// Whether a round is due. @param waiting Requests that wait to enter.
  [[nodiscard]] bool is_due(std::uint32_t waiting) const noexcept {
    if (all_.size() < 2) return false;
    return unseen_ >= next_ || is_surprise(waiting);
  }
  /// Tries all policies, if any request has arrived.
  /// @returns Whether another policy is better; it is the present one from now on.
  bool choose(std::uint32_t waiting) {
    if (record_.empty()) return false;
    const bool is_alone = is_surprise(waiting);
    const std::size_t n = std::min(record_.size(), full_);
    set_start(n, waiting);
    double limit = HUGE_VAL;
    for (candidate& c : all_) limit = std::min(limit, 4 * try_one(c, limit));
    ++rounds_;
    const auto judged = static_cast<double>(n);
    seen_ = is_alone ? judged : std::min(seen_ + judged, 8 * static_cast<double>(full_));
    std::size_t best = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      candidate& c = all_[i];
      const double relative =
          std::log(std::max(c.last.sum_ms, 1e-9) / std::max(all_[0].last.sum_ms, 1e-9));
      c.score += (relative - c.score) * judged / seen_;
      if (arrived_ >= c.barred_until && c.score < all_[best].score) best = i;
    }
    // Parts of few requests estimate the error poorly.
    const double errors = (n < full_ ? 3 : 2) * std::sqrt(judged / seen_);
    // So far nothing shows that the present one is better than the first.
    const bool shows_gain = all_[present_].score < -least_gain;
    const std::size_t held = rounds_ == 1 && !shows_gain ? 0 : present_;
    if (!is_better(all_[best], all_[held], errors)) best = held;
    if (best == held && n == full_ && all_[held].score > 0) best = 0;  // The simplest is as good.
    const bool changes = best != present_;
    if (changes && is_alone) {
      candidate& left = all_[present_];
      left.barred_until = arrived_ + (std::uint64_t{2 * full_} << std::min(left.surprises, 16U));
      ++left.surprises;
    }
    present_ = best;
    next_ = n < full_ || changes ? n : std::min(2 * next_, 8 * full_);
    unseen_ = 0;
    return changes;
  }

 private:
  static constexpr double least_gain = 0.005;   // Required to adopt a policy.
  static constexpr std::size_t smallest = 8;    // Arrivals of the first round.
  static constexpr std::size_t most_times = 8;  // Repetitions of the arrivals in a small round.
  static constexpr std::size_t block = 256;     // Arrivals per block for comparing rates.
  static constexpr std::size_t parts = 16;      // Parts of a round; their variance gives the error.

  /// The result of a trial.
  struct outcome_of_trial : null_replay_watch {
    const std::vector<staged_arrival>* arrivals = nullptr;
    const pipeline<Policy>* tried = nullptr;
    std::size_t skipped = 0;  // First requests, not counted: their queue is empty.
    double limit_ms = 0;      // The trial is cut short beyond this.
    double sum_ms = 0;
    std::uint32_t most_waiting = 0;
    std::array<double, parts> part_ms{};  // In the order of arrival.

    void ended(const staged_request& r, outcome how, time_point at) noexcept {
      if (how != outcome::completed || r.tag < skipped) return;
      const double ms = to_ms(at - (*arrivals)[r.tag].at);
      sum_ms += ms;
      part_ms[(r.tag - skipped) * parts / (arrivals->size() - skipped)] += ms;
    }
    [[nodiscard]] bool goes_on(time_point) noexcept {
      most_waiting = std::max(most_waiting, tried->waiting());
      return sum_ms <= limit_ms;
    }
    [[nodiscard]] bool is_cut_short() const noexcept { return sum_ms > limit_ms; }
  };
  struct candidate {
    Policy policy;
    double score = 0;                // Log of the latency relative to the first's.
    std::uint64_t barred_until = 0;  // Arrivals.
    std::uint32_t surprises = 0;
    outcome_of_trial last{};
  };

  /// A load that has changed for two blocks is judged by itself.
  void watch_rate() {
    const std::size_t n = record_.size();
    in_block_ = 0;
    if (n < 4 * block) return;
    const double lately = to_ms(record_[n - 1].at - record_[n - block].at);
    const double before = to_ms(record_[n - 2 * block].at - record_[0].at) * (block - 1) /
                          static_cast<double>(n - 2 * block);
    const int change = lately < 0.75 * before ? 1 : lately > before / 0.75 ? -1 : 0;
    if (change == 0 || std::exchange(change_, change) != change) return;
    change_ = 0;
    record_.erase(record_.begin(), record_.end() - 2 * block);
    seen_ = 0;  // The next round's scores count alone.
    next_ = 0;
  }
  [[nodiscard]] bool is_surprise(std::uint32_t waiting) const noexcept {
    return rounds_ > 0 && unseen_ >= 64 && waiting > 8 + 2 * all_[present_].last.most_waiting;
  }

  /// Trials start with the present number of waiting requests: from an empty queue, a policy too
  /// slow for the load would seem good enough until the queue has grown. For the same reason few
  /// arrivals are replayed several times.
  void set_start(std::size_t n, std::uint32_t waiting) {
    const auto first = record_.end() - static_cast<std::ptrdiff_t>(n);
    tried_.assign(record_.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(waiting, n)),
                  record_.end());
    for (staged_arrival& a : tried_) a.at = first->at;
    const auto gaps = static_cast<std::int64_t>(std::max<std::size_t>(2, n) - 1);
    const duration length = (record_.back().at - first->at) / gaps * (gaps + 1);
    const std::size_t times =
        length > duration{} ? std::clamp<std::size_t>(full_ / n, 1, most_times) : 1;
    for (std::size_t k = 0; k < times; ++k) {
      const duration later = static_cast<std::int64_t>(k) * length;
      for (auto i = first; i != record_.end(); ++i) tried_.push_back({i->at + later, i->bucket});
    }
  }
  double try_one(candidate& c, double limit) {
    pipeline<Policy> p{*profile_, options_, c.policy};
    c.last = {};
    c.last.arrivals = &tried_;
    c.last.tried = &p;
    c.last.skipped = tried_.size() / 4;
    c.last.limit_ms = limit;
    replay(p, *profile_, tried_, device_, c.last);
    c.last.tried = nullptr;
    return c.last.sum_ms;
  }
  /// @param errors Number of standard errors that counts as chance.
  [[nodiscard]] static bool is_better(const candidate& a, const candidate& b,
                                      double errors) noexcept {
    double error = 0;
    if (!b.last.is_cut_short()) {  // Else there is no doubt.
      const double mean = (a.last.sum_ms - b.last.sum_ms) / parts;
      for (std::size_t k = 0; k < parts; ++k) {
        const double d = a.last.part_ms[k] - b.last.part_ms[k] - mean;
        error += d * d;
      }
      error = errors * std::sqrt(error * parts / (parts - 1)) / std::max(1e-9, b.last.sum_ms);
    }
    return a.score < b.score - least_gain - error;
  }

  const stage_profile* profile_;
  pipeline_options options_;
  replay_options device_;
  std::vector<candidate> all_;
  std::vector<staged_arrival> record_;
  std::vector<staged_arrival> tried_;
  std::size_t full_;        // Requests of a full round.
  std::size_t next_;        // Arrivals until the next round.
  std::size_t unseen_ = 0;  // Arrivals since the last one.
  std::uint64_t arrived_ = 0;
  std::size_t in_block_ = 0;
  int change_ = 0;   // Rate in the last block: up or down.
  double seen_ = 0;  // Requests that the scores are based on.
  std::size_t present_;
  std::uint64_t rounds_ = 0;
};

}  // namespace cohort::batching
