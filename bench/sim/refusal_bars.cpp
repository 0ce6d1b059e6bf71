// SPDX-License-Identifier: Apache-2.0
// Question: what does it cost, and what does it spare, to refuse requests at their arrival? Runs
// each workload at several loads twice, with and without, and prints a table; the exit status is 1
// if a bar is missed. `--quick` runs a short pass and judges nothing; `--draws N SEED` draws other
// workloads, 40 from 540 by default.
#include <cohort/sim/goodput.hpp>

#include <registry/policy.hpp>

#include "bars.hpp"
#include "drawn_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {
using namespace cohort;
using namespace std::chrono_literals;
using namespace cohort::bench;

const registry::policy adaptive = registry::parse_policies("adaptive", {}).front();

sim::run_result run(const sim::workload& w, double rate, std::uint64_t seed, bool refuses) {
  return registry::run_policy(
      adaptive, w, {.rate = rate, .seed = seed, .refusals = {.is_on = refuses}}, [](time_point) {});
}

/// About the highest rate with 2 % bad.
double peak_of(const sim::workload& w) {
  sim::workload shorter = w;
  shorter.warmup = 1s;
  const sim::search_options o{
      .precision = 0.02, .bad_limit = 0.02, .seeds = 1, .judge = sim::judged::total};
  return sim::find_goodput(shorter, o, 1e7,
                           [&](sim::workload x, const sim::run_options& r) {
                             x.measured = std::max<duration>(2s, from_seconds(20'000 / r.rate));
                             return registry::run_policy(adaptive, x, r, [](time_point) {});
                           })
      .goodput;
}

/// A run with refusals beside the same one without.
struct comparison {
  double goodput;  ///< In time, with over without.
  double early;    ///< Of those that were not served with them: refused at arrival.
  double lost;     ///< Served without them and not with them, for each one refused.
  double bad;      ///< Share without them.
};
comparison compare(const sim::workload& w, double rate, std::uint64_t seed) {
  const sim::run_result without = run(w, rate, seed, false);
  const sim::run_result with = run(w, rate, seed, true);
  const auto refused = static_cast<double>(with.refused);
  const double more = static_cast<double>(without.completed) - static_cast<double>(with.completed);
  return {.goodput = with.throughput_rps / without.throughput_rps,
          .early = refused / std::max(1.0, refused + static_cast<double>(with.dropped)),
          .lost = refused > 0 ? more / refused : 0,
          .bad = without.bad_rate};
}

void overload_of_one() {
  sim::workload w;
  for (const formats::zoo_row& r : formats::zoo("a100")) {
    if (r.name == "BERT") w = copies(8, 1, r.alpha_ms, r.beta_ms, r.slo_ms);
  }
  w = prepared(w, 60s);
  const double peak = peak_of(w);
  fmt::print("BERT (A100), 8 devices, 60 s at 3 x its peak of {:.0f} r/s, the worst of 5 seeds\n",
             peak);
  for (const double sigma : {0.0, 0.1}) {
    w.reality.noise.sigma = sigma;
    double good = any;
    double early = 1;
    double lost = -any;
    for (std::uint64_t seed = 1; seed <= (quick ? 1 : 5); ++seed) {
      const comparison c = compare(w, 3 * peak, seed);
      good = std::min(good, run(w, 3 * peak, seed, true).throughput_rps / peak);
      early = std::min(early, c.early);
      lost = std::max(lost, c.lost);
    }
    // With noise the peak would be a lower one.
    judge(fmt::format("sigma {}: requests in time over the peak", sigma), good,
          sigma == 0 ? 0.95 : 0);
    judge(fmt::format("sigma {}: refused at arrival, of those not served", sigma), early,
          sigma == 0 ? 0.95 : 0.9);
    judge(fmt::format("sigma {}: could have been served, of those refused", sigma), lost, -any,
          0.02);
  }
}

void draws(int count, std::uint64_t first) {
  fmt::print("\n{} drawn workloads from seed {}: geometric mean with over without\n", count, first);
  constexpr std::array loads{0.9, 1.0, 1.2, 1.6, 3.0};
  struct sums {
    double logs = 0;
    double worst = any;
    std::string worst_draw;
    double early = 0;
    int overloaded = 0;
  };
  std::array<sums, loads.size()> of{};
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    wide_workload d = draw_wide_workload(seed);
    sim::workload& w = d.workload;
    const double peak = peak_of(w);
    w.warmup = 2s;
    w.measured = from_seconds(quick ? 1.0 : std::clamp(200'000 / peak, 4.0, 30.0));
    for (std::size_t k = 0; k < loads.size(); ++k) {
      const comparison c = compare(w, loads[k] * peak, seed);
      of[k].logs += std::log(c.goodput);
      if (c.goodput < of[k].worst) {
        of[k].worst = c.goodput;
        of[k].worst_draw = d.name;
      }
      if (c.bad < 0.4) continue;
      ++of[k].overloaded;
      of[k].early += c.early;
    }
  }
  for (std::size_t k = 0; k < loads.size(); ++k) {
    const sums& s = of[k];
    judge(fmt::format("{} of the peak: requests in time", loads[k]), std::exp(s.logs / count),
          0.99);
    fmt::print("    worst {:.3f}, of {}\n", s.worst, s.worst_draw);
    if (s.overloaded == 0) continue;
    fmt::print(
        "    {} are bad for 40 % or more without: {:.1f} % of what is not served is refused\n",
        s.overloaded, 100 * s.early / s.overloaded);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int count = 40;
  std::uint64_t first = 540;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    quick |= word == "--quick";
    if (word == "--draws" && i + 2 < argc) {
      count = std::atoi(argv[i + 1]);
      first = std::strtoull(argv[i + 2], nullptr, 10);
    }
  }
  overload_of_one();
  draws(quick ? 2 : count, first);
  return missed ? 1 : 0;
}
