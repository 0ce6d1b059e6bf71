// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long prompts take to prefill: `prefill_curve`, from a measurement, and `prefill_pace`, the
/// ratio of recent prefill times to the prediction.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::kv {

/// Prefill time of a prompt's tokens by position: later tokens attend to more. Measured over a
/// number of steps of equal length. The rate is linear within a step; beyond the last step it goes
/// on growing as it did. Thread safety: immutable.
class prefill_curve {
 public:
  /// Assumes a microsecond a token until a measurement exists; `prefill_pace` corrects it.
  prefill_curve() : prefill_curve{duration{0}, 1, {std::chrono::microseconds{1}}} {}
  /// @param fixed Time of a piece of work on top of its tokens; at least 0.
  /// @param step Tokens of a step; at least 1.
  /// @param steps Time of each step, the first from position 0 on; at least one, each at least 0.
  /// @throws config_error If an argument is outside its range.
  prefill_curve(duration fixed, std::uint32_t step, const std::vector<duration>& steps);

  [[nodiscard]] duration fixed() const noexcept { return fixed_; }
  /// Time of tokens [first, last) of a prompt, without `fixed`; first <= last. O(1).
  [[nodiscard]] duration between(std::uint32_t first, std::uint32_t last) const noexcept {
    return duration{static_cast<std::int64_t>(until(last) - until(first))};
  }
  /// Time of a whole prompt alone. O(1).
  [[nodiscard]] duration prompt(std::uint32_t tokens) const noexcept {
    return fixed_ + between(0, tokens);
  }

 private:
  [[nodiscard]] double until(std::uint32_t position) const noexcept;

  duration fixed_;
  double step_;
  std::vector<double> ends_{0};  // Nanoseconds until the end of each step, behind a 0.
  double growth_ = 0;            // Growth of a step's time from one step to the next, beyond the
                                 // last.
};

/// Recent ratio of actual to predicted prefill time. Small samples are joined until they amount to
/// `grain`; of the last `kept` grains, each run of `run` in a row has a mean. `stretch` is the
/// ratio that 9 of 10 runs did not exceed, or that of the latest run if it is higher: a slower
/// machine is believed at once, a faster one only after a while. A run is about as long as the work
/// ahead of a prompt, so single hiccups even out as they do there. Thread safety: none. Never
/// allocates.
class prefill_pace {
 public:
  static constexpr std::size_t kept = 48;
  static constexpr std::size_t run = 4;

  /// @param grain Predicted time that makes up one sample; above 0.
  /// @throws config_error If it is not.
  explicit prefill_pace(duration grain) : grain_{static_cast<double>(grain.count())} {
    expects(grain > duration{0}, "prefill_pace: grain must be above 0");
  }

  /// Records the predicted and the actual time of a piece of work; both at least 0. O(kept).
  void note(duration predicted, duration took) noexcept;

  /// The ratio of time to prediction that is seldom exceeded; 1 if nothing was recorded. O(1).
  [[nodiscard]] double stretch() const noexcept { return stretch_; }
  /// The least ratio among the remembered runs, an optimistic estimate; at most `stretch`. O(1).
  [[nodiscard]] double best() const noexcept { return best_; }

 private:
  struct sample {
    double predicted = 0;
    double took = 0;
  };
  [[nodiscard]] const sample& back(std::size_t age) const noexcept {
    return grains_[(next_ + kept - 1 - age) % kept];
  }
  /// Mean of `sum` and `grains` grains, starting with the one that is `age` grains old, or of as
  /// many as there are.
  [[nodiscard]] double mean(sample sum, std::size_t age, std::size_t grains) const noexcept {
    for (std::size_t i = age; i < std::min(age + grains, count_); ++i) {
      sum.predicted += back(i).predicted;
      sum.took += back(i).took;
    }
    return sum.took / sum.predicted;
  }

  double grain_;
  sample open_;  // Less than a grain.
  std::array<sample, kept> grains_{};
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  double stretch_ = 1;
  double best_ = 1;
};

inline prefill_curve::prefill_curve(duration fixed, std::uint32_t step,
                                    const std::vector<duration>& steps)
    : fixed_{fixed}, step_{static_cast<double>(step)} {
  expects(fixed >= duration{0}, "prefill_curve: fixed must be at least 0");
  expects(step >= 1, "prefill_curve: step must be at least 1");
  expects(!steps.empty(), "prefill_curve: at least one step must be given");
  for (const duration d : steps) {
    expects(d >= duration{0}, "prefill_curve: steps must be at least 0");
    ends_.push_back(ends_.back() + static_cast<double>(d.count()));
  }
  // By the line from the first step to the last: two neighbours differ by noise.
  const auto n = static_cast<double>(steps.size());
  if (steps.size() > 1) {
    growth_ = std::max(0.0, static_cast<double>((steps.back() - steps.front()).count()) / (n - 1));
  }
}

inline double prefill_curve::until(std::uint32_t position) const noexcept {
  const double steps = position / step_;
  const std::size_t known = ends_.size() - 1;
  const auto whole = static_cast<std::size_t>(steps);
  if (whole < known) {
    return ends_[whole] + (steps - static_cast<double>(whole)) * (ends_[whole + 1] - ends_[whole]);
  }
  const double beyond = steps - static_cast<double>(known);
  return ends_.back() + beyond * (ends_.back() - ends_[known - 1]) +
         growth_ * beyond * (beyond + 1) / 2;
}

inline void prefill_pace::note(duration predicted, duration took) noexcept {
  open_.predicted += static_cast<double>(predicted.count());
  open_.took += static_cast<double>(took.count());
  if (open_.predicted <= 0) return;
  if (open_.predicted >= grain_) {
    grains_[next_] = open_;
    open_ = {};
    next_ = (next_ + 1) % kept;
    count_ = std::min(count_ + 1, kept);
  }
  std::array<double, kept> runs{};
  std::size_t n = 0;
  for (std::size_t age = 0; age < count_ && (age == 0 || age + run <= count_); ++age) {
    runs[n++] = mean({}, age, run);
  }
  stretch_ = best_ = open_.predicted > 0 ? mean(open_, 0, run - 1) : runs[0];
  if (n == 0) return;
  std::ranges::sort(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(n));
  stretch_ = std::max(stretch_, runs[(n - 1) * 9 / 10]);
  best_ = std::min(best_, runs[0]);
}

}  // namespace cohort::kv
