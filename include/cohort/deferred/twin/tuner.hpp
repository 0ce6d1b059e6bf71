// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses which settings to try next, and whether to change: `tuner`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/settings.hpp>
#include <cohort/deferred/twin/standing.hpp>
#include <cohort/deferred/twin/trial.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// Options of self-tuning.
struct tuning_options {
  bool is_on = true;  ///< If false, the initial settings stay.
  objective strive_for = objective::latency;
  /// Settings until results are known: for latency the simplest; starting at once would keep all
  /// devices busy.
  settings initial{.window = strive_for == objective::devices ? window_kind::reserved
                                                              : window_kind::eager};
  /// Weight of the worst model's bad rate, relative to that of all requests; at least 0. At 0 it
  /// serves the most requests in overload, at the expense of costly models.
  double fairness = 0.2;
  duration window = std::chrono::seconds{4};            ///< Length of traffic to try; above 0.
  std::uint32_t least_requests = 2000;                  ///< Extended to this many requests, ≥ 1,
  duration longest_window = std::chrono::seconds{300};  ///< but to no more than this.
  duration period = std::chrono::milliseconds{500};     ///< Time between trials, above 0,
  duration longest_period = std::chrono::seconds{4};    ///< and up to this while nothing changes.
  /// Fraction of a core that trials may use, in (0, 1], if their CPU time is known; the second
  /// applies for a while after a change.
  double core_part = 0.03;
  double core_part_soon = 0.08;

  /// @throws config_error If a field is outside its range.
  void validate() const {
    initial.policy().validate();
    initial.learns().validate();
    expects(fairness >= 0, "tuning: fairness must be at least 0");
    expects(window > duration{0} && longest_window >= window,
            "tuning: window must be above 0, and longest_window at least as long");
    expects(least_requests > 0, "tuning: least_requests must be at least 1");
    expects(period > duration{0} && longest_period >= period,
            "tuning: period must be above 0, and longest_period at least as long");
    expects(core_part > 0 && core_part <= 1 && core_part_soon >= core_part && core_part_soon <= 1,
            "tuning: core_part must be in (0, 1], and core_part_soon at least as much");
  }
};

/// A change of settings, for logs and reports.
struct settings_change {
  time_point at;
  settings now;
  comparison why;       ///< The new settings compared with the old ones.
  trial_result before;  ///< The last round's result for the old settings,
  trial_result after;   ///< and for the new ones.
};

/// Coordinate search over settings: varies the window and the quantile in turn. A value that
/// decides only from results. Thread safety: none.
class tuner {
 public:
  explicit tuner(const tuning_options& o) : options_{o}, present_{o.initial} {
    o.validate();
    standings_.reserve(most_standings);
  }

  [[nodiscard]] const settings& present() const noexcept { return present_; }
  /// Maximum number of settings in a round.
  static constexpr std::size_t most_tried = window_kinds.size();
  /// Writes the settings to try in this round to `out`, the present ones first.
  void candidates(std::vector<settings>& out) const {
    out.assign(1, present_);
    const auto add = [&](settings s) {
      if (std::ranges::find(out, s) == out.end()) out.push_back(s);
    };
    settings s = present_;
    if (turn_ == 0 || turn_ % 2 == 1) {
      for (const window_kind w : window_kinds) {
        s.window = w;
        add(s);
      }
      return;
    }
    const auto at = static_cast<std::size_t>(
        std::ranges::lower_bound(tried_quantiles, present_.quantile) - tried_quantiles.begin());
    for (const std::size_t i : {at - 1, at, at + 1}) {  // Between two of them, three are tried.
      if (i >= tried_quantiles.size()) continue;
      s.quantile = tried_quantiles[i];
      add(s);
    }
  }

  /// Takes the results for all of `candidates()`, in their order. @returns Whether the present
  /// settings have changed.
  /// @param arrived Requests in total; shows how many are new in this round.
  bool judge(const std::vector<settings>& tried, const std::vector<trial_result>& results,
             std::uint64_t arrived) {
    ++turn_;
    const differences tolerance = tolerance_of(results);
    const double clear = much * tolerance.all;
    const double cost = cost_of(results[0]);
    if (standings_.size() + most_tried > most_standings) standings_.clear();
    std::array<const standing*, most_tried> known{};
    double least = 0;
    bool is_better = false;
    bool was_better = false;
    const standing* simplest = nullptr;
    for (std::size_t i = 1; i < results.size(); ++i) {
      standing& s = standing_of(tried[i]);
      s.add(score(results[i]) - score(results[0]), cost > 0 ? cost_of(results[i]) / cost : 1, clear,
            results[0].requests, arrived);
      if (is_simplest_as_good(s, results[i], results[0], tolerance)) simplest = &s;
      if (s.rounds < 2 && s.excess > -clear) continue;  // The result of one round may be chance.
      // Saving the last few bad requests does not justify delaying all others.
      if (s.ratio > 1.1 && loses_little(results[0])) continue;
      known[i] = &s;
      least = std::min(least, s.excess);
      is_better = is_better || s.excess < -2 * tolerance.all;
      was_better = was_better || s.past_excess < -std::max(tolerance.usual, s.past_chance());
    }
    if (simplest != nullptr) {
      why_ = simplest->why(false);
      change_to(*simplest);
      return true;
    }
    const standing* chosen = cheapest_of(known, least, tolerance);
    // A lower cost without loss must exceed chance; and giving up immediate starts, which serve
    // latency, needs long evidence.
    const bool is_as_good =
        chosen != nullptr &&
        std::max(chosen->excess, chosen->past_excess) + tolerance.chance <= 2 * tolerance.usual &&
        (present_.window != window_kind::eager || options_.strive_for == objective::devices ||
         chosen->past_chance() < HUGE_VAL);
    if (chosen == nullptr || (!is_better && !was_better && !(is_as_good && chosen->ratio < 0.95))) {
      idle_turns_ = std::min(idle_turns_ + 1, 16U);
      return false;
    }
    why_ = chosen->why(!is_better && was_better);
    change_to(*chosen);
    idle_turns_ = 0;
    return true;
  }

  /// Time until the next round: longer while nothing changes, and limited by the CPU budget.
  /// @param cost CPU time of the last round; 0 if not known.
  [[nodiscard]] duration pause(duration cost = duration{0}) const noexcept {
    duration p = options_.period;
    for (std::uint32_t i = 4; i < idle_turns_ && p < options_.longest_period; i += 2) p *= 2;
    const double part = idle_turns_ < 4 ? options_.core_part_soon : options_.core_part;
    return std::max(std::min(p, options_.longest_period), from_seconds(to_seconds(cost) / part));
  }
  /// Notes a change of conditions: try again soon, and windows twice.
  void wake() noexcept {
    idle_turns_ = 0;
    turn_ = 0;
    standings_.clear();
  }
  [[nodiscard]] const tuning_options& options() const noexcept { return options_; }
  /// The reason for the last change of settings.
  [[nodiscard]] const comparison& why() const noexcept { return why_; }

 private:
  static constexpr double much = 8;  // Tolerances beyond chance in one round.
  static constexpr std::size_t most_standings = 32;

  /// Insignificant differences of scores.
  struct differences {
    double usual;   // A fraction of the usual loss or service.
    double chance;  // Chance deviation for this many requests.
    double all;     // The larger.
  };

  [[nodiscard]] bool loses_little(const trial_result& r) const noexcept {
    return options_.strive_for == objective::latency && r.bad <= 0.002 && r.worst_bad <= 0.02;
  }
  /// Whether the simplest settings are as good: if neither settings lose requests, waiting for
  /// larger batches only costs latency. This needs no long evidence: starting at once is what a
  /// server without a scheduler does.
  [[nodiscard]] bool is_simplest_as_good(const standing& s, const trial_result& its,
                                         const trial_result& present,
                                         const differences& tolerance) const noexcept {
    return options_.strive_for == objective::latency && s.which.window == window_kind::eager &&
           its.bad == 0 && present.bad == 0 && its.requests > 0 &&
           its.latency < 0.95 * present.latency &&
           std::max(s.excess, s.past_excess) <= 2 * tolerance.usual;
  }

  /// Of the settings that recently lose the fewest requests, and of these the fewest in the long
  /// run, both except for chance, returns the cheapest; null if that is the present ones.
  [[nodiscard]] static const standing* cheapest_of(std::array<const standing*, most_tried>& known,
                                                   double least,
                                                   const differences& tolerance) noexcept {
    // The present settings, with score 0, may be among the best.
    double past_least = least + tolerance.all < 0 ? HUGE_VAL : 0;
    for (const standing*& s : known) {
      if (s != nullptr && s->excess > least + tolerance.all) s = nullptr;
      if (s != nullptr) past_least = std::min(past_least, s->past_excess);
    }
    const standing* chosen = nullptr;
    for (const standing* s : known) {
      if (s == nullptr || s->past_excess > past_least + tolerance.usual) continue;
      if (chosen == nullptr || s->ratio < chosen->ratio) chosen = s;
    }
    return chosen;
  }
  standing& standing_of(const settings& s) {
    const auto found = std::ranges::find(standings_, s, &standing::which);
    return found != standings_.end() ? *found : standings_.emplace_back(standing{.which = s});
  }
  void change_to(standing chosen) {
    std::erase_if(standings_, [&](const standing& s) { return s.which == chosen.which; });
    for (standing& s : standings_) s.rebase(chosen);
    standings_.push_back(chosen.of_present(present_));
    present_ = chosen.which;
  }

  [[nodiscard]] double score(const trial_result& r) const noexcept {
    return r.bad + options_.fairness * r.worst_bad;
  }
  [[nodiscard]] double cost_of(const trial_result& r) const noexcept {
    return options_.strive_for == objective::latency ? r.latency : static_cast<double>(r.devices);
  }
  [[nodiscard]] differences tolerance_of(const std::vector<trial_result>& results) const noexcept {
    double fewest = results[0].bad;
    for (const trial_result& r : results) fewest = std::min(fewest, r.bad);
    const auto n = static_cast<double>(std::max<std::uint64_t>(results[0].requests, 1));
    const double usual = 0.001 + 0.02 * std::min(fewest, 1 - fewest);
    // One request of the worst model more or less is insignificant.
    const std::uint64_t of_worst = results[0].worst_requests;
    const double one = of_worst > 0 ? options_.fairness / static_cast<double>(of_worst) : 0;
    const double chance = 2 * (std::sqrt(fewest * (1 - fewest) * n + 1) / n + one);
    return {usual, chance, std::max(usual, chance)};
  }

  tuning_options options_;
  settings present_;
  comparison why_;
  std::vector<standing> standings_;  // For settings other than the present ones.
  std::uint32_t turn_ = 0;
  std::uint32_t idle_turns_ = 0;
};

}  // namespace cohort::deferred
