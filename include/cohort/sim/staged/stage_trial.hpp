// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the best number of stages for a model, by trials in virtual time on measured operators.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/slicer.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/arrivals.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Conditions of the trial.
struct stage_trial_options {
  std::uint32_t batch_max = 16;  ///< Largest batch; at least 1, and measured for each operator.
  duration hand_over{};          ///< Cost of an item beside its time; at least 0.
  /// Cost of a row beside its items, by batch size: uses the next larger size, or the last.
  std::vector<batching::batch_time> rows{};
  double load = 0.6;                ///< Fraction of the peak rate; above 0 and below 1.
  std::size_t most_stages = 8;      ///< Counts from 1 to this are tried; at least 1.
  std::uint64_t requests = 10'000;  ///< Requests of each run; 1 to 10^7.
  std::uint64_t seed = 1;           ///< Seed of the arrivals, equal for each count.
  std::uint32_t buffer_sets = 2;    ///< At least 1.
  batching::entry_rule entry = batching::entry_rule::idle;
};

/// Result for one number of stages.
struct tried_stages {
  batching::slicing ends;
  double mean_ms = 0;  ///< Mean latency.
};

/// The result of a trial.
struct stage_trial {
  double rate_rps = 0;              ///< Rate of the arrivals.
  std::vector<tried_stages> tried;  ///< With 1, 2, ... stages.
  std::size_t best = 0;             ///< The first within 1 % of the least mean latency.

  [[nodiscard]] const batching::slicing& ends() const { return tried.at(best).ends; }
};

/// The highest rate of a model run as one stage, in requests per second: with its best measured
/// batch size, one batch after the other, each with a hand-over.
/// @throws config_error If it takes no time.
[[nodiscard]] inline double whole_peak(const batching::stage_profile& p, duration hand_over) {
  double best = 0;
  for (const std::uint32_t b : p.sizes()) {
    const duration t = p.total(b) + hand_over;
    expects(t > duration{0}, "stage_trial: operators and hand-overs must take time");
    best = std::max(best, b / to_seconds(t));
  }
  return best;
}

/// Profile of stages made of consecutive operators; the first one includes the rows' cost.
/// @param operators As in `slice`.
[[nodiscard]] inline batching::stage_profile stages_of(
    std::span<const std::vector<batching::batch_time>> operators, const batching::slicing& ends,
    const stage_trial_options& o) {
  std::vector<std::vector<batching::stage_point>> stages;
  batching::add_stage_points(stages, operators, ends);
  if (!o.rows.empty()) {
    const std::vector<batching::batch_time> rows = batching::monotone(o.rows);
    for (batching::stage_point& p : stages.front()) {
      const auto at = std::ranges::lower_bound(rows, p.batch, {}, &batching::batch_time::batch);
      p.time += at == rows.end() ? rows.back().time : at->time;
    }
  }
  return {stages, o.batch_max};
}

/// Mean latency in milliseconds of Poisson arrivals on a device that runs one item at a time, under
/// the planned policies. Every item is charged a hand-over, even where a driver would run through
/// several stages at once, so that the cost of more stages is not underestimated.
[[nodiscard]] inline double staged_mean_ms(const batching::stage_profile& p,
                                           std::span<const staged_arrival> arrivals,
                                           const stage_trial_options& o) {
  const batching::diversity policy{p, {.hand_over = o.hand_over}};
  const batching::pipeline_options options{
      .buffer_sets = o.buffer_sets,
      .entry = o.entry,
      .max_rows = std::max(256U, 2 * (o.buffer_sets + 1) * o.batch_max),
      .max_waiting = static_cast<std::uint32_t>(arrivals.size())};
  return run_staged(
             p, arrivals, {.overhead = o.hand_over},
             [&](staged_counts counts) {
               return batching::pipeline{p, options, policy, std::move(counts)};
             },
             [](time_point) {})
      .mean_ms();
}

/// Cuts a model into 1, 2, ... stages by `slice_to` and runs each in virtual time. Deterministic by
/// seed. O(most_stages · requests · log requests), and a plan for each.
/// @param operators Measurements of each operator, in topological order.
/// @throws config_error If there is no operator, one was not measured at or above batch_max, or an
/// option is outside its range.
[[nodiscard]] inline stage_trial try_stage_counts(
    std::span<const std::vector<batching::batch_time>> operators, const stage_trial_options& o) {
  expects(!operators.empty(), "stage_trial: operators must be at least 1");
  expects(o.batch_max >= 1, "stage_trial: batch_max must be at least 1");
  expects(o.hand_over >= duration{0}, "stage_trial: hand_over must be at least 0");
  expects(o.load > 0 && o.load < 1, "stage_trial: load must be above 0 and below 1");
  expects(o.most_stages >= 1, "stage_trial: most_stages must be at least 1");
  expects(o.requests >= 1 && o.requests <= 10'000'000,
          "stage_trial: requests must be in 1 to 10000000");
  stage_trial out;
  const batching::slicing whole{operators.size()};
  out.rate_rps = o.load * whole_peak(stages_of(operators, whole, o), o.hand_over);
  workload poisson;
  poisson.models.push_back(
      {.name = "m", .latency = linear_latency{duration{1}, duration{1}}, .slo = {}});
  arrival_stream stream{poisson, out.rate_rps, o.seed};
  std::vector<staged_arrival> arrivals;
  arrivals.reserve(o.requests);
  for (std::uint64_t i = 0; i < o.requests; ++i) {
    arrivals.push_back({.at = stream.next()});
    stream.take();
  }
  expects(arrivals.back().at != never, "stage_trial: a model so slow cannot be tried");
  std::vector<std::size_t> counts(std::min(o.most_stages, operators.size()));
  std::iota(counts.begin(), counts.end(), 1U);
  out.best = batching::best_stage_count(
                 counts,
                 [&](std::size_t n) {
                   batching::slicing ends = batching::slice_to(operators, n, o.batch_max);
                   const double ms = staged_mean_ms(stages_of(operators, ends, o), arrivals, o);
                   out.tried.push_back({std::move(ends), ms});
                   return ms;
                 }) -
             1;
  return out;
}

}  // namespace cohort::sim
