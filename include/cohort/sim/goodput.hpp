// SPDX-License-Identifier: Apache-2.0
/// @file
/// Searches over runs: the highest rate that meets every SLO, and the fewest devices for a rate.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::sim {

/// One run of a workload under a scheduler that `make_scheduler(network_delays)` returns.
template <class Factory, class Progress>
run_result simulate(const workload& w, const Factory& make_scheduler, const run_options& options,
                    Progress&& progress) {
  return simulation{w, make_scheduler(w.told_delays()), options}.run(
      std::forward<Progress>(progress));
}

/// Which requests the limit on bad requests applies to.
enum class judged : std::uint8_t {
  each_model,  ///< The worst model decides.
  total,       ///< All requests together: for noise or stragglers that make some model miss it.
};

/// When a rate counts as met, and the precision of the search.
struct search_options {
  double precision = 0.01;  ///< Width of the last bracket, relative to the rate; 1e-6 to 1.
  double bad_limit = 0.01;  ///< Largest fraction dropped or late; 0 to below 1.
  std::uint32_t seeds = 3;  ///< Runs at each rate; at least 1.
  std::uint64_t seed = 1;   ///< Seed of the first run; run k uses seed + k.
  judged judge = judged::each_model;
  double guess = 0;  ///< Start of a goodput search, to save runs; 0: the staggered bound.
};

/// Each model's fraction of bad requests, averaged over runs of one workload. At least one run.
[[nodiscard]] inline std::vector<double> average_bad_rates(std::span<const run_result> runs) {
  std::vector<double> average(runs.front().per_model.size());
  for (const run_result& run : runs) {
    for (std::size_t i = 0; i < average.size(); ++i) average[i] += run.per_model[i].bad_rate;
  }
  for (double& a : average) a /= static_cast<double>(runs.size());
  return average;
}

/// Whether no model's average fraction of bad requests is above the limit.
[[nodiscard]] inline bool meets_every_slo(std::span<const run_result> runs, double bad_limit) {
  return std::ranges::all_of(average_bad_rates(runs),
                             [bad_limit](double bad) { return bad <= bad_limit; });
}

/// The fraction of bad requests of all models together, averaged over runs. At least one run.
[[nodiscard]] inline double average_bad_rate(std::span<const run_result> runs) {
  double sum = 0;
  for (const run_result& run : runs) sum += run.bad_rate;
  return sum / static_cast<double>(runs.size());
}

/// Whether the runs are within the limit of a search.
[[nodiscard]] inline bool meets(std::span<const run_result> runs, const search_options& o) {
  return o.judge == judged::total ? average_bad_rate(runs) <= o.bad_limit
                                  : meets_every_slo(runs, o.bad_limit);
}

/// Devices needed per request per second of the workload, with every batch as large as staggered
/// execution allows: the largest b with (1 + 1/N) ℓ(b) ≤ SLO. Source: Symphony, section 3.3.
[[nodiscard]] inline double staggered_load(const workload& w) {
  const std::vector<double> part = w.normalised_shares();
  const double stretch = 1 + 1.0 / w.devices;
  double load = 0;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const model_spec& m = w.models[i];
    std::uint32_t low = 1;
    std::uint32_t high = effective_max_batch(m);
    while (low < high) {
      const std::uint32_t middle = low + (high - low + 1) / 2;
      if (stretch * to_seconds(m.latency_of(middle)) <= to_seconds(m.slo)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    load += part[i] * to_seconds(m.latency_of(low)) / low;
  }
  return load;
}

/// Searches for the highest rate for which `meets(rate)` holds. From `guess` it steps up or down,
/// by ever larger factors, to a bracket of a met and an unmet rate, and halves that until it is no
/// wider than `precision` of the rate. If `meets` is not monotone (chance makes it so near the
/// peak), the result is a met rate with an unmet one at most `precision` above it. Every rate tried
/// is rounded to a tenth of the precision, so that it can be quoted.
/// @param low,high The range searched; a rate below `low` counts as 0.
/// @returns The rate, 0 if none down to `low` is met, or `high` if all are. Calls `meets` O(log(1 /
/// precision) + log log(high / low)) times.
template <class Meets>
[[nodiscard]] double find_highest_rate(double guess, double low, double high, double precision,
                                       Meets&& meets) {
  const auto rounded = [&](double rate) {
    const double unit = std::pow(10.0, std::floor(std::log10(rate * precision / 10)));
    return unit < 1 ? std::round(rate / unit) / std::round(1 / unit)
                    : std::round(rate / unit) * unit;
  };
  double good = 0;
  double bad = 0;
  double factor = 1.05;
  double rate = rounded(std::clamp(guess, low, high));
  if (meets(rate)) {
    for (good = rate;; good = rate) {
      if (good >= high) return good;
      rate = std::min(rounded(good * factor), high);
      factor *= factor;
      if (!meets(rate)) break;
    }
    bad = rate;
  } else {
    for (bad = rate;; bad = rate) {
      if (bad <= low) return 0;
      rate = std::max(rounded(bad / factor), low);
      factor *= factor;
      if (meets(rate)) break;
    }
    good = rate;
  }
  while (bad - good > precision * good) {
    rate = rounded((good + bad) / 2);
    (meets(rate) ? good : bad) = rate;
  }
  return good;
}

/// Searches for the smallest count in 1 to `limit` for which `meets(count)` holds, as
/// `find_highest_rate` does for rates. @returns Nothing if `limit` does not suffice.
template <class Meets>
[[nodiscard]] std::optional<std::uint32_t> find_smallest_count(std::uint32_t guess,
                                                               std::uint32_t limit, Meets&& meets) {
  std::uint32_t count = std::clamp(guess, 1U, limit);
  std::uint32_t bad = 0;  // Known to be too few.
  std::uint32_t good = 0;
  std::uint32_t step = std::max(1U, count / 16);
  if (meets(count)) {
    for (good = count; good > 1;) {
      count = good - std::min(step, good - 1);
      if (!meets(count)) {
        bad = count;
        break;
      }
      good = count;
      step *= 2;
    }
  } else {
    for (;;) {
      bad = count;
      if (bad == limit) return std::nullopt;
      count = bad + std::min(step, limit - bad);
      step *= 2;
      if (meets(count)) break;
    }
    good = count;
  }
  while (good - bad > 1) {
    count = bad + (good - bad) / 2;
    (meets(count) ? good : bad) = count;
  }
  return good;
}

/// One run for each seed, on as many threads as there are cores; the result does not depend on
/// their number. @param run `run_result(const workload&, const run_options&)`; any thread.
template <class Run>
[[nodiscard]] std::vector<run_result> run_seeds(const workload& w, double rate,
                                                const search_options& o, const Run& run) {
  std::vector<run_result> out(o.seeds);
  std::atomic<std::uint32_t> next{0};
  const auto work = [&] {
    for (std::uint32_t i; (i = next++) < o.seeds;) {
      out[i] = run(w, run_options{.rate = rate, .seed = o.seed + i});
    }
  };
  const std::uint32_t threads =
      std::clamp(std::thread::hardware_concurrency(), 1U, std::max(1U, o.seeds));
  std::vector<std::future<void>> helpers;
  for (std::uint32_t i = 1; i < threads; ++i) {
    helpers.push_back(std::async(std::launch::async, work));
  }
  work();
  for (std::future<void>& helper : helpers) helper.get();
  return out;
}

/// Result of a search for goodput.
struct goodput_result {
  double goodput = 0;                 ///< Requests a second; 0 if no rate is met.
  std::optional<run_result> at_peak;  ///< The run of the first seed at that rate.
  bool beyond = false;                ///< The highest rate searched is met: there may be more.
};

/// The highest rate at which the fraction of bad requests of every model (or of all together, as
/// the options say), averaged over the seeds, is at most the limit. @param highest Highest rate to
/// try. @param run As for `run_seeds`.
/// @throws config_error If an option is outside its range.
template <class Run>
[[nodiscard]] goodput_result find_goodput(const workload& w, const search_options& o,
                                          double highest, const Run& run) {
  expects(o.precision >= 1e-6 && o.precision <= 1, "search_options: precision must be 1e-6 to 1");
  expects(o.bad_limit >= 0 && o.bad_limit < 1, "search_options: bad_limit must be in 0 to below 1");
  expects(o.seeds > 0, "search_options: seeds must be at least 1");
  expects(o.guess >= 0, "search_options: guess must be at least 0");
  goodput_result out;
  const double guess = o.guess > 0 ? o.guess : w.devices / staggered_load(w);
  // Below one request in the measured part there is nothing to measure.
  const double lowest = std::min(1 / to_seconds(w.measured), highest);
  out.goodput = find_highest_rate(guess, lowest, highest, o.precision, [&](double rate) {
    std::vector<run_result> runs = run_seeds(w, rate, o, run);
    const bool met = meets(runs, o);
    if (met) out.at_peak = std::move(runs.front());
    return met;
  });
  out.beyond = out.goodput >= highest;
  return out;
}

/// The fewest devices, up to `limit`, with which `rate` is met in the sense of `find_goodput`.
/// @param run As for `run_seeds`. @throws config_error If an option is outside its range.
template <class Run>
[[nodiscard]] std::optional<std::uint32_t> find_min_devices(workload w, double rate,
                                                            std::uint32_t limit,
                                                            const search_options& o,
                                                            const Run& run) {
  expects(o.bad_limit >= 0 && o.bad_limit < 1, "search_options: bad_limit must be in 0 to below 1");
  expects(o.seeds > 0, "search_options: seeds must be at least 1");
  expects(limit > 0, "find_min_devices: limit must be at least 1");
  w.devices = limit;
  const double guess = std::min(std::ceil(rate * staggered_load(w)), 1.0 * limit);
  return find_smallest_count(static_cast<std::uint32_t>(guess), limit, [&](std::uint32_t count) {
    w.devices = count;
    return meets(run_seeds(w, rate, o, run), o);
  });
}

}  // namespace cohort::sim
