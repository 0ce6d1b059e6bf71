// SPDX-License-Identifier: Apache-2.0
// Question: do plans keep their promise under Poisson arrivals and interference, what does the
// margin for that cost, and does a server that plans anew follow a load that rises and falls?
// Prints tables; the exit status is 1 if a bar is missed. The first argument is the folder of the
// profile set; `--quick` runs a short pass of all and judges nothing.
#include <cohort/packing/model/burst_margin.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/squishy.hpp>
#include <cohort/sim/plans/closed_loop.hpp>
#include <cohort/sim/plans/load_curve.hpp>

#include "profile_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

namespace {
using namespace cohort;
using namespace cohort::packing;

bool quick = false;
bool missed = false;

void judge(std::string_view what, double figure, double most) {
  const bool met = figure <= most;
  missed |= !met && !quick;
  fmt::print("  {:<74} {:>9.4g}   bar at most {:<6} {}\n", what, figure, most,
             quick ? "not judged"
             : met ? "met"
                   : "MISSED");
  std::fflush(stdout);
}

/// The largest multiple of 50 requests a second of each model that is admitted.
double equal_multiple(const latency_grid& padded, burst_margin margin) {
  double low = 0;
  double high = 100;
  while (high - low > 0.005) {
    const double middle = (low + high) / 2;
    const packing_problem p{
        .gpus = 4,
        .rates_rps = margin.plan_rps(padded, std::vector<double>(padded.models(), 50 * middle))};
    (elastic_int{}(padded, p).schedulable() ? low : high) = middle;
  }
  return low;
}

/// Plans for all demands, made with a margin, under the rates asked for.
void promises(const bench::profile_files& files, const latency_grid& padded, double deviations) {
  int admitted = 0;
  int kept = 0;
  double worst = 0;
  double worst_model = 0;
  double served = 0;
  double lost = 0;
  for (int i = 1; i < 1024; i += quick ? 60 : 1) {
    std::vector<double> asked;
    for (int m = 0, rest = i; m < 5; ++m, rest /= 4) asked.push_back(200.0 * (rest % 4));
    const packing_problem p{.gpus = 4,
                            .rates_rps = burst_margin{deviations}.plan_rps(padded, asked)};
    const packing_result r = elastic_int{}(padded, p);
    if (!r.schedulable()) continue;
    ++admitted;
    std::vector<sim::plan_simulation::source> sources;
    for (const double rate : asked) sources.push_back({[rate](double) { return rate; }, rate});
    sim::plan_simulation s{padded, sources, files.interference, static_cast<std::uint64_t>(i)};
    s.install(r.plan);
    s.run(quick ? 3'000 : 30'000);
    sim::plan_counts all;
    for (const sim::plan_counts& c : s.counts()) {
      all.completed += c.completed;
      all.violated += c.violated;
      worst_model = std::max(worst_model, c.violation_rate());
    }
    worst = std::max(worst, all.violation_rate());
    kept += all.violation_rate() <= 0.01;
    served += static_cast<double>(all.completed);
    lost += static_cast<double>(all.violated);
  }
  fmt::print(
      "  margin of {:>4} deviations: {:>4} admitted, {:>4} of them with at most 1 % violations; "
      "worst plan {:.2f} %, worst model {:.2f} %, over all {:.3f} %; equal mix up to {:.2f}\n",
      deviations, admitted, kept, 100 * worst, 100 * worst_model, 100 * lost / (served + lost),
      equal_multiple(padded, burst_margin{deviations}));
  if (deviations >= 1) {
    judge(fmt::format("violations of the worst plan with {} deviations, percent", deviations),
          100 * worst, 1);
  }
}

void waves(const bench::profile_files& files, const latency_grid& padded) {
  const double peak[] = {330, 500, 280, 200, 200};  // goo, le, res, ssd, vgg.
  std::vector<sim::plan_simulation::source> sources;
  for (int m = 0; m < 5; ++m) {
    const double most = peak[m];
    const double shift = 15.0 * m;
    sources.push_back(
        {[most, shift](double at_ms) { return most * sim::two_waves(at_ms / 1e3 - shift, 1800); },
         most});
  }
  for (const double delay_s : {0.1, 5.0, 12.0, 15.0}) {
    sim::closed_loop_options o{.transition_ms = 1e3 * delay_s};
    if (quick) o.length_ms = 60'000;
    const sim::closed_loop_result r =
        sim::run_closed_loop(padded, {.gpus = 4}, sources, files.interference, elastic_int{}, o);
    double low = 1e9;
    double high = 0;
    std::size_t loads = 0;
    std::size_t replans = 0;
    double xy = 0, xx = 0, yy = 0, mx = 0, my = 0;
    const auto n = static_cast<double>(r.periods.size());
    for (const auto& p : r.periods) {
      low = std::min<double>(low, p.used_pct);
      high = std::max<double>(high, p.used_pct);
      loads += p.loads;
      replans += p.replanned;
      mx += p.completed_rps / n;
      my += p.used_pct / n;
    }
    for (const auto& p : r.periods) {
      xy += (p.completed_rps - mx) * (p.used_pct - my);
      xx += std::pow(p.completed_rps - mx, 2);
      yy += std::pow(p.used_pct - my, 2);
    }
    if (delay_s == 12.0) {
      fmt::print("  end s  r/s arrived  r/s in time  partitions in use %  violations %\n");
      for (std::size_t i = 0; i < r.periods.size(); i += 5) {
        const auto& p = r.periods[i];
        double arrived = 0;
        for (const double x : p.arrived_rps) arrived += x;
        fmt::print("  {:>5.0f}  {:>11.1f}  {:>11.1f}  {:>19}  {:>12.3f}\n", p.end_s, arrived,
                   p.completed_rps, p.used_pct, 100 * p.violation_rate);
      }
    }
    fmt::print(
        "  transition in {} s: {} plans, {} models loaded, {} to {} % in use, correlation of "
        "use and load {:.3f}, interrupted {}\n",
        delay_s, replans, loads, low, high, xy / std::sqrt(xx * yy), r.interrupted);
    judge(fmt::format("violations with transition in {} s, percent", delay_s),
          100 * r.violation_rate, 0.14);
  }
}

}  // namespace

int main(int argc, char** argv) {
  quick = argc > 2 && std::string_view{argv[2]} == "--quick";
  if (argc < 2) {
    fmt::print(stderr, "expected the folder of the profile set\n");
    return 2;
  }
  const auto files = bench::read_profiles(argv[1]);
  const latency_grid padded{files.models, {.pad_for = files.interference}};
  fmt::print("plans of elastic-int for 1023 demands on 4 GPUs, simulated with interference\n");
  for (const double deviations : {0.0, 0.5, 1.0, 1.5, 2.0}) promises(files, padded, deviations);
  fmt::print("\ntwo waves in 1800 s, five models, 4 GPUs, a decision every 20 s\n");
  waves(files, padded);
  return missed ? 1 : 0;
}
