// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long each stage of a model runs, by batch size and padded input size.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::batching {

/// One measurement of a stage.
struct stage_point {
  std::uint32_t batch = 1;   ///< Requests; at least 1.
  std::uint32_t bucket = 0;  ///< Class of the padded input size, from 0.
  duration time{};           ///< At least 0.
  double share = 1;          ///< Part of the device that it uses while it runs, in (0, 1].
};

/// Time and device share of every stage for every batch size up to batch_max: taken from the next
/// larger measured size, or interpolated between two of them. O(1) a look-up; memory 16 bytes ×
/// stages × buckets × batch_max. Immutable. Thread safety: full.
class stage_profile {
 public:
  /// @param stages The measurements of each stage, in any order.
  /// @throws config_error If there is no stage, a stage or bucket has no measurement at or above
  ///         batch_max, a batch is 0 or given twice, or a value is outside its range.
  /// @param between How sizes between two measured ones are handled; sizes below the first take its
  ///         time.
  stage_profile(std::span<const std::vector<stage_point>> stages, std::uint32_t batch_max,
                std::uint32_t buckets = 1, between_sizes between = between_sizes::step)
      : stages_{static_cast<std::uint32_t>(stages.size())},
        batch_max_{batch_max},
        buckets_{buckets} {
    expects(!stages.empty(), "stage_profile: stages must be at least 1");
    expects(batch_max >= 1, "stage_profile: batch_max must be at least 1");
    expects(buckets >= 1, "stage_profile: buckets must be at least 1");
    cells_.resize(std::size_t{stages_} * buckets * batch_max);
    for (std::uint32_t s = 0; s < stages_; ++s) {
      for (std::uint32_t k = 0; k < buckets; ++k) fill(s, k, stages[s], between);
    }
    if (between == between_sizes::line) {
      // Each size is worth considering, but costs planning time.
      const std::uint32_t every = 1 + (batch_max - 1) / most_sizes;
      for (std::uint32_t b = every; b <= batch_max; b += every) sizes_.push_back(b);
    }
    std::ranges::sort(sizes_);
    const auto repeated = std::ranges::unique(sizes_);
    sizes_.erase(repeated.begin(), repeated.end());
  }

  static constexpr std::uint32_t most_sizes = 64;

  [[nodiscard]] std::uint32_t stages() const noexcept { return stages_; }
  [[nodiscard]] std::uint32_t batch_max() const noexcept { return batch_max_; }
  [[nodiscard]] std::uint32_t buckets() const noexcept { return buckets_; }
  /// The sizes of batches worth making, ascending, batch_max among them: for steps the measured
  /// sizes, since any other takes as long as the next; for lines also all others, or `most_sizes`
  /// evenly spaced.
  [[nodiscard]] std::span<const std::uint32_t> sizes() const noexcept { return sizes_; }

  /// Time of one stage for 1 to batch_max requests.
  [[nodiscard]] duration time(std::uint32_t stage, std::uint32_t batch,
                              std::uint32_t bucket = 0) const noexcept {
    return at(stage, batch, bucket).time;
  }
  [[nodiscard]] double share(std::uint32_t stage, std::uint32_t batch,
                             std::uint32_t bucket = 0) const noexcept {
    return at(stage, batch, bucket).share;
  }
  /// Time of the stages [first, end).
  [[nodiscard]] duration time_between(std::uint32_t first, std::uint32_t end, std::uint32_t batch,
                                      std::uint32_t bucket = 0) const noexcept {
    duration sum{};
    for (std::uint32_t s = first; s < end; ++s) sum += time(s, batch, bucket);
    return sum;
  }
  /// Time of all stages.
  [[nodiscard]] duration total(std::uint32_t batch, std::uint32_t bucket = 0) const noexcept {
    return time_between(0, stages_, batch, bucket);
  }

 private:
  struct cell {
    duration time{};
    double share = 1;
  };

  [[nodiscard]] const cell& at(std::uint32_t stage, std::uint32_t batch,
                               std::uint32_t bucket) const noexcept {
    COHORT_ASSERT(stage < stages_ && batch >= 1 && batch <= batch_max_ && bucket < buckets_);
    return cells_[(std::size_t{stage} * buckets_ + bucket) * batch_max_ + batch - 1];
  }

  /// Interpolates between two points; the second is at or above the batch.
  static cell on_line(const stage_point& a, const stage_point& b, std::uint32_t batch) noexcept {
    const double part = (static_cast<double>(batch) - a.batch) / (b.batch - a.batch);
    const auto rise = static_cast<double>((b.time - a.time).count());
    return {.time = a.time + duration{std::llround(part * rise)},
            .share = a.share + part * (b.share - a.share)};
  }

  void fill(std::uint32_t stage, std::uint32_t bucket, const std::vector<stage_point>& points,
            between_sizes between) {
    std::vector<stage_point> mine;
    for (const stage_point& p : points) {
      expects(p.batch >= 1, "stage_profile: batch must be at least 1");
      expects(p.bucket < buckets_, "stage_profile: bucket must be below the number of buckets");
      expects(p.time >= duration{0} && p.time <= unbounded,
              "stage_profile: time must be at least 0");
      expects(p.share > 0 && p.share <= 1, "stage_profile: share must be in (0, 1]");
      if (p.bucket == bucket) mine.push_back(p);
    }
    std::ranges::sort(mine, {}, &stage_point::batch);
    std::uint32_t next = 1;
    const stage_point* before = nullptr;
    for (const stage_point& p : mine) {
      expects(p.batch >= next, "stage_profile: a batch size must not be given twice");
      const std::uint32_t end = std::min(p.batch, batch_max_);
      for (; next <= end; ++next) {
        cells_[(std::size_t{stage} * buckets_ + bucket) * batch_max_ + next - 1] =
            before != nullptr && between == between_sizes::line ? on_line(*before, p, next)
                                                                : cell{p.time, p.share};
      }
      before = &p;
      if (sizes_.empty() || sizes_.back() != end) sizes_.push_back(end);
      next = p.batch + 1;
    }
    expects(next > batch_max_,
            "stage_profile: every stage and bucket needs a measurement at or above batch_max");
  }

  std::uint32_t stages_;
  std::uint32_t batch_max_;
  std::uint32_t buckets_;
  std::vector<cell> cells_;
  std::vector<std::uint32_t> sizes_;
};

}  // namespace cohort::batching
