// SPDX-License-Identifier: Apache-2.0
// Question: do the packers schedule what they should, how fast, and how even are sub-clusters?
// Prints the tables of docs/packing; the exit status is 1 if a bar is missed. The first argument is
// the folder of the profile set; `--quick` runs a short pass of all and judges nothing.
#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/elastic_two_sided.hpp>
#include <cohort/packing/packers/exact_partition.hpp>
#include <cohort/packing/packers/ideal.hpp>
#include <cohort/packing/packers/self_tuning.hpp>
#include <cohort/packing/packers/squishy.hpp>
#include <cohort/packing/subclusters/subcluster_search.hpp>

#include "profile_files.hpp"
#include "zoo_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {
using namespace cohort::packing;
using clock_type = std::chrono::steady_clock;

bool quick = false;
bool missed = false;
constexpr double any = 1e300;

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

void judge(std::string_view what, double figure, double least, double most) {
  const bool met = figure >= least && figure <= most;
  missed |= !met && !quick;
  const std::string bar = most == any  ? fmt::format("at least {:.5g}", least)
                          : least == 0 ? fmt::format("at most {:.5g}", most)
                                       : fmt::format("{:.5g} to {:.5g}", least, most);
  fmt::print("  {:<66} {:>11.5g}   bar {:<18} {}\n", what, figure, bar,
             quick ? "not judged"
             : met ? "met"
                   : "MISSED");
  std::fflush(stdout);
}

/// All demands of five models at 0, 200, 400 or 600 requests a second each, but for none at all.
std::vector<std::vector<double>> all_demands() {
  std::vector<std::vector<double>> all;
  for (int i = 1; i < 1024; i += quick ? 40 : 1) {
    all.emplace_back();
    for (int m = 0, rest = i; m < 5; ++m, rest /= 4) all.back().push_back(200.0 * (rest % 4));
  }
  return all;
}

struct tally {
  double scheduled = 0;
  double unknown = 0;
  double median_us = 0;
  double total_s = 0;
  std::vector<bool> by_demand;
};

/// Runs a packer on all demands; every plan goes through the verifier.
template <class Packer>
tally run_all(const latency_grid& grid, std::uint32_t gpus, slo_rule rule,
              const std::optional<interference_model>& interference, const Packer& packer) {
  tally t;
  std::vector<double> us;
  for (std::vector<double>& rates : all_demands()) {
    const packing_problem p{.gpus = gpus, .rule = rule, .rates_rps = std::move(rates)};
    const auto start = clock_type::now();
    const packing_result r = packer(grid, p);
    us.push_back(1e6 * seconds_since(start));
    t.scheduled += r.schedulable();
    t.unknown += r.status == packing_status::unknown;
    t.by_demand.push_back(r.schedulable());
    if (!r.schedulable()) continue;
    for (const std::string& broken : verify(grid, p, r.plan, interference)) {
      missed = true;
      fmt::print("  PLAN BREAKS A RULE: {}\n", broken);
    }
  }
  t.total_s = 1e-6 * std::accumulate(us.begin(), us.end(), 0.0);
  std::ranges::nth_element(us, us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2));
  t.median_us = us[us.size() / 2];
  return t;
}

void demands(const cohort::bench::profile_files& files) {
  const latency_grid plain{files.models, {}};
  const latency_grid padded{files.models, {.pad_for = files.interference}};
  const std::optional<interference_model> alone;
  const std::optional<interference_model> beside = files.interference;
  std::vector<bool> others;
  // `about`: within one percent of the published reference; a heuristic may be better.
  const auto row = [&](std::string_view name, const latency_grid& grid, std::uint32_t gpus,
                       slo_rule rule, const auto& packer, double least, double most,
                       bool fast = true) {
    const bool with = grid.options().pad_for.has_value();
    const tally t = run_all(grid, gpus, rule, with ? beside : alone, packer);
    judge(fmt::format("{}, {} GPUs, rule {}{} ({:.1f} us)", name, gpus,
                      rule == slo_rule::own ? "own" : "sum", with ? ", interference" : "",
                      t.median_us),
          t.scheduled, least, most);
    if (fast && t.median_us > 100) judge("  median us a demand", t.median_us, 0, 100);
    if (!with && rule == slo_rule::own && gpus == 2) {
      others.resize(t.by_demand.size());
      for (std::size_t i = 0; i < others.size(); ++i) others[i] = others[i] || t.by_demand[i];
    }
  };
  const auto about = [&](std::string_view name, const latency_grid& grid, std::uint32_t gpus,
                         slo_rule rule, const auto& packer, double reference) {
    row(name, grid, gpus, rule, packer, 0.99 * reference, 1.01 * reference);
  };
  using enum slo_rule;
  fmt::print("schedulable demands of 1023, with the median time of one\n");
  about("squishy", plain, 4, sum, squishy, 582);
  about("squishy", plain, 4, own, squishy, 790);
  about("squishy-even", plain, 4, own, squishy_even, 1023);
  about("squishy-even", plain, 4, sum, squishy_even, 987);
  row("self-tuning", plain, 4, own, self_tuning{}, 0, any);
  about("elastic", plain, 4, own, elastic{}, 1023);
  row("elastic-int", padded, 4, own, elastic_int{}, 1004, any);
  row("ideal", plain, 4, own, ideal{}, 1023, any, false);
  about("squishy", plain, 2, own, squishy, 131);
  about("squishy-even", plain, 2, own, squishy_even, 361);
  row("self-tuning", plain, 2, own, self_tuning{}, 0, any);
  row("elastic", plain, 2, own, elastic{}, 414, any);
  row("elastic, --order rate-slo", plain, 2, own, basic_elastic<rate_slo_ascending>{}, 0, any);
  about("elastic-int", padded, 2, own, elastic_int{}, 344);
  row("ideal", plain, 2, own, ideal{}, 490, any, false);
  row("portfolio (every order, every knee)", plain, 2, own, portfolio{}, 490, any, false);
  for (const auto& [gpus, reference] : {std::pair{4U, 752.0}, {2U, 204.0}}) {
    const tally t = run_all(plain, gpus, own, beside, elastic_two_sided{files.interference});
    judge(
        fmt::format("elastic-int --pad none, {} GPUs, interference ({:.1f} us)", gpus, t.median_us),
        t.scheduled, reference, any);
    if (t.median_us > 100) judge("  median us a demand", t.median_us, 0, 100);
  }
  const auto exact = [&](const latency_grid& grid, std::uint32_t gpus, double least, double most) {
    const std::clock_t start = std::clock();  // Of this core alone, however busy the machine is.
    const configuration_set set{grid, own, {0, 1, 2, 3, 4}};
    const bool with = grid.options().pad_for.has_value();
    const tally t = run_all(grid, gpus, own, with ? beside : alone,
                            [&](const latency_grid& g, const packing_problem& p) {
                              return exact_partition{}(g, p, set);
                            });
    const std::string name =
        fmt::format("exact, {} GPUs, rule own{}", gpus, with ? ", interference" : "");
    judge(name, t.scheduled, least, most);
    judge(name + ": called unknown", t.unknown, 0, 0);
    judge(name + ": seconds of a core for all",
          static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 0, 60);
    if (with || gpus != 2) return;
    double lost = 0;
    for (std::size_t i = 0; i < others.size(); ++i) lost += others[i] && !t.by_demand[i];
    judge("exact: unschedulable, but not for another algorithm", lost, 0, 0);
  };
  exact(plain, 2, 530, 530);
  exact(padded, 2, 385, 385);
  exact(plain, 4, 1023, 1023);
  exact(padded, 4, 1016, any);
}

struct mix {
  std::string_view name;
  std::vector<double> rates;  // goo, le, res, ssd, vgg.
  double slo_ms;              // Of all models, or 0.
  double optimum;
  double optimum_of_four;
};

/// The largest schedulable multiple, to one in a thousand.
template <class Packer>
double largest_multiple(const mix& m, const Packer& packer) {
  double low = 0;
  double high = 1;
  const auto serves = [&](double multiple) {
    packing_problem p{.gpus = 4};
    for (const double r : m.rates) p.rates_rps.push_back(r * multiple);
    return packer(p).schedulable();
  };
  while (serves(high)) {
    low = high;
    high *= 1.5;
  }
  const double precision = quick ? 0.1 : 0.001;
  while (high - low > precision * high) {
    const double middle = (low + high) / 2;
    (serves(middle) ? low : high) = middle;
  }
  return low;
}

void mixes(const cohort::bench::profile_files& files) {
  const mix all[] = {{"equal", {50, 50, 50, 50, 50}, 0, 13.70, 14.02},
                     {"long-only", {0, 0, 100, 100, 100}, 0, 8.38, 8.45},
                     {"short-skew", {100, 100, 100, 50, 50}, 0, 9.71, 10.13},
                     {"game", {0, 600, 100, 0, 0}, 95, 24.95, 25.97},
                     {"traffic", {100, 0, 0, 100, 100}, 136, 10.31, 10.64}};
  fmt::print("\nlargest schedulable multiple of a mix on 4 GPUs\n");
  for (const bool four : {false, true}) {
    for (const mix& m : all) {
      std::vector<model_profile> models = files.models;
      std::vector<std::uint32_t> used;
      for (std::uint32_t i = 0; i < models.size(); ++i) {
        if (m.slo_ms > 0) models[i].slo_ms = m.slo_ms;
        if (m.rates[i] > 0) used.push_back(i);
      }
      grid_options o;
      if (four) o = {.sizes = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, .max_gpulets_per_gpu = 4};
      const latency_grid grid{std::move(models), std::move(o)};
      const auto of = [&](const auto& packer) {
        return largest_multiple(m, [&](const packing_problem& p) { return packer(grid, p); });
      };
      fmt::print("  {}{}: squishy {:.2f}, elastic {:.2f}, elastic by rate-slo {:.2f}", m.name,
                 four ? ", four gpu-lets in steps of 10 %" : "", of(squishy), of(elastic{}),
                 of(basic_elastic<rate_slo_ascending, most_per_size>{}));
      if (!four) fmt::print(", ideal {:.2f}", of(ideal{}));
      fmt::print("\n");
      const configuration_set set{grid, slo_rule::own, used};
      const double reached = largest_multiple(m, [&](const packing_problem& p) {
        const auto start = clock_type::now();
        return exact_partition{{.max_nodes = std::numeric_limits<std::uint64_t>::max(),
                                .stop = [&] { return seconds_since(start) > (quick ? 0.2 : 5); }}}(
            grid, p, set);
      });
      judge(fmt::format("{}: exact, 5 s a demand", m.name), reached,
            0.99 * (four ? m.optimum_of_four : m.optimum), any);
    }
  }
}

void large(const cohort::bench::profile_files& files) {
  fmt::print("\n1000 models on 1000 GPUs, seconds\n");
  const std::uint32_t n = quick ? 50 : 1000;
  std::mt19937_64 random{1};
  std::vector<model_profile> models;
  packing_problem p{.gpus = n};
  for (std::uint32_t i = 0; i < n; ++i) {
    models.push_back(files.models[i % 5]);
    models.back().name += fmt::format("-{}", i);
    p.rates_rps.push_back(50 + static_cast<double>(random() % 500));
  }
  const latency_grid plain{models, {}};
  const latency_grid padded{models, {.pad_for = files.interference}};
  const auto time = [&](std::string_view name, const latency_grid& grid, const auto& packer) {
    const auto start = clock_type::now();
    const packing_result r = packer(grid, p);
    const double s = seconds_since(start);
    judge(fmt::format("{} ({})", name,
                      r.schedulable() ? fmt::format("{} % of a GPU", used_pct(r.plan)) : r.reason),
          s, 0, 1);
    if (r.schedulable()) missed |= !verify(grid, p, r.plan).empty();
  };
  time("squishy", plain, squishy);
  time("squishy-even", plain, squishy_even);
  time("self-tuning", plain, self_tuning{});
  time("elastic", plain, elastic{});
  time("elastic-int", padded, elastic_int{});
  double bound = 0;
  time("exact", plain, [&bound](const latency_grid& g, const packing_problem& asked) {
    packing_result r = exact_partition{}(g, asked);
    bound = r.bound.value_or(0);
    return r;
  });
  // The bound is in proportion to the devices.
  judge("exact: devices that any plan needs, of those given", std::ceil(n / bound), 1, n);
}

/// @param zoo Static memory of the zoo's models, in turn; else anything from 10 to 600 MB.
void subclusters(bool zoo) {
  fmt::print("\nsub-clusters, 800 models on 20, {}: objective in percent of the average rate\n",
             zoo ? "weights of the zoo's models" : "10 to 600 MB each");
  std::mt19937_64 random{1};
  const auto uniform = [&random] { return static_cast<double>(random() >> 11U) * 0x1p-53; };
  subcluster_problem p{.count = 20};
  const auto& weights = cohort::bench::zoo_weights_mb;
  for (int i = 0; i < 800; ++i) {
    p.models.push_back({.rate_rps = -100 * std::log(1 - uniform()),
                        .static_mb = zoo ? weights[static_cast<std::size_t>(i) % weights.size()]
                                         : 10 + 590 * uniform(),
                        .dynamic_mb = 5 + 95 * uniform()});
  }
  p.rate_cap_rps = 1.05 * p.average_rate();
  p.memory_mb = 1.05 * p.average_memory() + 100;
  const auto search = [&p](double limit_s) {
    const auto start = clock_type::now();
    subcluster_search s{p};
    improve(s, [&] { return seconds_since(start) / limit_s; });
    return s.best();
  };
  const auto objective = [&p](const subcluster_assignment& a) {
    missed |= !verify(p, a).empty();
    return 100 * evaluate(p, a).objective / p.average_rate();
  };
  const auto blind = [&](double limit_s) {
    const auto start = clock_type::now();
    double best = any;
    subcluster_assignment a(p.models.size());
    while (seconds_since(start) < limit_s) {
      for (std::uint32_t& c : a) c = static_cast<std::uint32_t>(random() % p.count);
      if (verify(p, a).empty()) best = std::min(best, evaluate(p, a).objective);
    }
    return 100 * best / p.average_rate();
  };
  const double ms10 = objective(search(0.01));
  judge("in 10 ms", ms10, 0, 0.6);
  const subcluster_assignment best = search(quick ? 0.1 : 10);
  judge("in 10 s", objective(best), 0, 0.1);
  p.rate_cap_rps = p.memory_mb = std::numeric_limits<double>::infinity();
  // Without caps, since random assignments keep none that are this tight.
  judge("random search in 10 ms, over ours, without caps", blind(0.01) / ms10, 1, any);
  p.current = best;
  p.max_move_cost = 40;
  for (int i = 0; i < 80; ++i) {
    p.models[random() % 800].rate_rps = -100 * std::log(1 - uniform());
  }
  const subcluster_assignment moved = search(quick ? 0.1 : 10);
  judge("imbalance of rates in percent, 80 rates redrawn, 40 moves",
        100 * evaluate(p, moved).rate_imbalance, 0, 3);
}

}  // namespace

int main(int argc, char** argv) {
  quick = argc > 2 && std::string_view{argv[2]} == "--quick";
  if (argc < 2) {
    fmt::print(stderr, "expected the folder of the profile set\n");
    return 2;
  }
  const auto files = cohort::bench::read_profiles(argv[1]);
  demands(files);
  mixes(files);
  large(files);
  subclusters(false);
  subclusters(true);
  return missed ? 1 : 0;
}
