// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cuts a model's operators into stages: each operator's preferred batch, cuts where it changes,
/// slices of even time, and the number of stages by trial.
#pragma once

#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace cohort::batching {

/// A latency measured for a batch size.
struct batch_time {
  std::uint32_t batch = 1;
  duration time{};
};

/// Sorts measurements by batch. Times that fall as the batch grows are noise and are raised to the
/// largest before them.
/// @throws config_error If there are none, or a batch is 0 or given twice.
[[nodiscard]] inline std::vector<batch_time> monotone(std::vector<batch_time> measured) {
  expects(!measured.empty(), "slicer: an operator needs at least one measurement");
  std::ranges::sort(measured, {}, &batch_time::batch);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    expects(measured[i].batch >= 1, "slicer: batch must be at least 1");
    if (i == 0) continue;
    expects(measured[i].batch != measured[i - 1].batch,
            "slicer: a batch size must not be given twice");
    measured[i].time = std::max(measured[i].time, measured[i - 1].time);
  }
  return measured;
}

/// The smallest measured batch b that fully uses the device: beyond it time grows in proportion,
/// t(2 b) / t(b) >= 2 (1 − eps); with the next larger measurement in proportion where 2 b was not
/// measured. The largest batch if there is none.
/// @param eps At least 0 and below 1.
[[nodiscard]] inline std::uint32_t preferred_batch(std::span<const batch_time> measured,
                                                   double eps = 0.1) {
  expects(!measured.empty(), "slicer: an operator needs at least one measurement");
  expects(eps >= 0 && eps < 1, "slicer: eps must be at least 0 and below 1");
  for (std::size_t i = 0; i + 1 < measured.size(); ++i) {
    const batch_time& b = measured[i];
    std::size_t k = i + 1;
    while (k + 1 < measured.size() && measured[k].batch < 2 * b.batch) ++k;
    const double grown = static_cast<double>(measured[k].batch) / b.batch;
    const double ratio =
        static_cast<double>(measured[k].time.count()) / static_cast<double>(b.time.count());
    if (ratio >= grown * (1 - eps)) return b.batch;
  }
  return measured.back().batch;
}

/// Where the stages of a list of operators end: `ends[i]` is one past the last operator of stage i.
using slicing = std::vector<std::size_t>;

/// Divides times into `stages` runs whose largest sum is least; among equals, earlier cuts.
/// O(stages · n²). @throws config_error If stages is 0 or above the number of times.
[[nodiscard]] inline slicing slice_evenly(std::span<const duration> times, std::size_t stages) {
  const std::size_t n = times.size();
  expects(stages >= 1 && stages <= n, "slicer: stages must be in 1 to the number of operators");
  std::vector<duration> before(n + 1);
  for (std::size_t i = 0; i < n; ++i) before[i + 1] = before[i] + times[i];
  constexpr duration most = duration::max();
  // least[s][i]: the largest sum when the operators from i on are s stages.
  std::vector<std::vector<duration>> least(stages + 1, std::vector<duration>(n + 1, most));
  least[0][n] = duration{0};
  for (std::size_t s = 1; s <= stages; ++s) {
    for (std::size_t i = 0; i + s <= n; ++i) {
      for (std::size_t e = i + 1; e + s - 1 <= n; ++e) {
        if (least[s - 1][e] == most) continue;
        least[s][i] = std::min(least[s][i], std::max(before[e] - before[i], least[s - 1][e]));
      }
    }
  }
  slicing ends;
  std::size_t i = 0;
  const duration best = least[stages][0];
  for (std::size_t s = stages; s > 0; --s) {
    for (std::size_t e = i + 1; e + s - 1 <= n; ++e) {
      if (least[s - 1][e] <= best && before[e] - before[i] <= best) {
        ends.push_back(i = e);
        break;
      }
    }
  }
  return ends;
}

/// Cuts operators into stages: first wherever the preferred batch changes, then, up to `stages`,
/// the stage with the largest time for `batch` requests again into even ones.
/// @param operators Measurements of each operator, in topological order.
/// @param stages Wanted number. With more changes than that, the changes decide.
/// @throws config_error If there is no operator, or stages is 0 or above their number.
[[nodiscard]] inline slicing slice(std::span<const std::vector<batch_time>> operators,
                                   std::size_t stages, std::uint32_t batch, double eps = 0.1) {
  expects(!operators.empty(), "slicer: operators must be at least 1");
  expects(stages >= 1 && stages <= operators.size(),
          "slicer: stages must be in 1 to the number of operators");
  std::vector<duration> times;
  std::vector<std::size_t> starts{0};
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const std::vector<batch_time> m = monotone(operators[i]);
    auto at = std::ranges::lower_bound(m, batch, {}, &batch_time::batch);
    if (at == m.end()) --at;
    times.push_back(at->time);
    const std::uint32_t preferred = preferred_batch(m, eps);
    if (i > 0 && preferred != last) starts.push_back(i);
    last = preferred;
  }
  // How many stages each run of equal preference gets: the one with the longest stages gets more.
  std::vector<std::size_t> parts(starts.size(), 1);
  const auto end_of = [&](std::size_t r) {
    return r + 1 < starts.size() ? starts[r + 1] : operators.size();
  };
  const auto cut = [&](std::size_t r) {
    return slice_evenly(std::span{times}.subspan(starts[r], end_of(r) - starts[r]), parts[r]);
  };
  const auto longest = [&](std::size_t r) {
    duration most{0};
    std::size_t from = starts[r];
    for (const std::size_t e : cut(r)) {
      duration sum{0};
      for (; from < starts[r] + e; ++from) sum += times[from];
      most = std::max(most, sum);
    }
    return most;
  };
  for (std::size_t made = starts.size(); made < stages; ++made) {
    std::size_t best = starts.size();
    for (std::size_t r = 0; r < starts.size(); ++r) {
      if (parts[r] == end_of(r) - starts[r]) continue;
      if (best == starts.size() || longest(r) > longest(best)) best = r;
    }
    ++parts[best];
  }
  slicing ends;
  for (std::size_t r = 0; r < starts.size(); ++r) {
    for (const std::size_t e : cut(r)) ends.push_back(starts[r] + e);
  }
  return ends;
}

/// As `slice`, but never into more than `stages`: where the preferred batch changes more often,
/// uses even slices instead. For measurements so noisy, or hand-overs so expensive, that not every
/// change is worth a cut.
[[nodiscard]] inline slicing slice_to(std::span<const std::vector<batch_time>> operators,
                                      std::size_t stages, std::uint32_t batch, double eps = 0.1) {
  slicing ends = slice(operators, stages, batch, eps);
  if (ends.size() <= stages) return ends;
  std::vector<duration> times;
  for (const std::vector<batch_time>& o : operators) {
    const std::vector<batch_time> m = monotone(o);
    const auto at = std::ranges::lower_bound(m, batch, {}, &batch_time::batch);
    times.push_back(at == m.end() ? m.back().time : at->time);
  }
  return slice_evenly(times, stages);
}

/// The measurements of each stage: sums over its operators, at the batch sizes that all of them
/// have.
[[nodiscard]] inline std::vector<std::vector<batch_time>> sum_stages(
    std::span<const std::vector<batch_time>> operators, const slicing& ends) {
  std::vector<std::vector<batch_time>> out;
  std::size_t from = 0;
  for (const std::size_t end : ends) {
    std::vector<batch_time> sum = monotone(operators[from]);
    for (std::size_t i = from + 1; i < end; ++i) {
      const std::vector<batch_time> m = monotone(operators[i]);
      std::erase_if(sum, [&](batch_time& s) {
        const auto at = std::ranges::find(m, s.batch, &batch_time::batch);
        if (at == m.end()) return true;
        s.time += at->time;
        return false;
      });
    }
    out.push_back(std::move(sum));
    from = end;
  }
  return out;
}

/// The same as points of a profile, those of a bucket added to others.
/// @param stages Points of each stage; empty at first.
inline void add_stage_points(std::vector<std::vector<stage_point>>& stages,
                             std::span<const std::vector<batch_time>> operators,
                             const slicing& ends, std::uint32_t bucket = 0) {
  stages.resize(ends.size());
  auto to = stages.begin();
  for (const std::vector<batch_time>& sums : sum_stages(operators, ends)) {
    for (const batch_time& t : sums) {
      to->push_back({.batch = t.batch, .bucket = bucket, .time = t.time});
    }
    ++to;
  }
}

/// The fewest stages with a measured cost within one per cent of the least: the gain of more stages
/// must exceed the error of measurement.
/// @param tries Numbers to try, not empty.  @param cost Called with a number of stages; at least 0.
template <class Cost>
[[nodiscard]] std::size_t best_stage_count(std::span<const std::size_t> tries, Cost&& cost) {
  expects(!tries.empty(), "slicer: tries must not be empty");
  std::vector<double> costs;
  for (const std::size_t n : tries) costs.push_back(cost(n));
  const double most = 1.01 * *std::ranges::min_element(costs);
  std::size_t best = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = 0; i < tries.size(); ++i) {
    if (costs[i] <= most) best = std::min(best, tries[i]);
  }
  return best;
}

}  // namespace cohort::batching
