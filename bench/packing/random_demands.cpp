// SPDX-License-Identifier: Apache-2.0
// Question: on demands of any shape, around the edge of what fits, how often does `exact` not know,
// and is it ever wrong? Draws demands by seed, runs every packer and `exact` on each, puts every
// plan through the verifier, and holds each `infeasible` against all others and, with CBC and on up
// to 4 devices, an integer program. The exit status is 1 if a bar is missed.
#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/exact_partition.hpp>
#include <cohort/packing/packers/ideal.hpp>
#include <cohort/packing/packers/portfolio.hpp>
#include <cohort/packing/packers/self_tuning.hpp>
#include <cohort/packing/packers/squishy.hpp>

#ifdef COHORT_HAS_CBC
#include <packing/partition_cbc.hpp>
#endif

#include "drawn_demand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace cohort::packing;
using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

struct settings {
  std::uint64_t first = 1;
  std::uint64_t count = 500;
  double limit_s = 10;
  double program_s = 60;  // Of the integer program, each.
  bool quick = false;
  cohort::bench::draw_options draw{};
};

/// Reads --seed, --count, --limit-s, --program-s, --models, --gpus and --quick.
settings read_settings(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quick") {
      s.quick = true;
      s.count = 60;
      s.limit_s = 0.2;
      s.program_s = 2;
      s.draw.most_gpus = 6;
      s.draw.most_models = 4;
      continue;
    }
    if (i + 1 == argc) {
      fmt::print(stderr, "{}: expected a value\n", name);
      std::exit(2);
    }
    const char* value = argv[++i];
    if (name == "--seed") s.first = std::strtoull(value, nullptr, 10);
    if (name == "--count") s.count = std::strtoull(value, nullptr, 10);
    if (name == "--limit-s") s.limit_s = std::strtod(value, nullptr);
    if (name == "--program-s") s.program_s = std::strtod(value, nullptr);
    if (name == "--models") s.draw.most_models = static_cast<std::uint32_t>(std::atoi(value));
    if (name == "--gpus") s.draw.most_gpus = static_cast<std::uint32_t>(std::atoi(value));
  }
  return s;
}

struct tally {
  int served = 0;
  int broken = 0;
  double worst_s = 0;
};

class run {
 public:
  explicit run(const settings& s) : settings_{s} {}

  void demand(std::uint64_t seed) {
    const auto d = cohort::bench::draw_demand(seed, settings_.draw);
    bool others = false;
    const auto heuristic = [&](std::size_t row, const auto& packer) {
      others |= solve(rows_[row], seed, d, packer);
    };
    const auto& sizes = d.grid.options().sizes;
    if (std::ranges::binary_search(sizes, 100U)) heuristic(0, squishy);
    if (std::ranges::binary_search(sizes, 50U) && d.grid.options().max_gpulets_per_gpu >= 2) {
      heuristic(1, squishy_even);
    }
    heuristic(2, self_tuning{});
    heuristic(3, elastic{});
    heuristic(4, elastic_int{});
    ideal all_cuts;
    const auto start_ideal = clock_type::now();
    all_cuts.stop = [&] { return seconds_since(start_ideal) > (settings_.quick ? 0.05 : 1); };
    heuristic(5, all_cuts);
    heuristic(6, portfolio{});

    const auto start = clock_type::now();
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    const exact_partition exact{{.max_nodes = most, .max_roundings = most, .stop = [&] {
                                   return seconds_since(start) > settings_.limit_s;
                                 }}};
    packing_result answer;
    solve(rows_[7], seed, d,
          [&](const latency_grid& g, const packing_problem& p) { return answer = exact(g, p); });
    if (!answer.bound) ++without_bound_;
    seconds_.push_back(seconds_since(start));
    infeasible_ += answer.status == packing_status::infeasible;
    if (answer.status == packing_status::unknown) {
      ++unknown_;
      fmt::print("  seed {}: unknown: {} devices, {} gpu-lets, {} sizes, {} models\n", seed,
                 d.problem.gpus, d.grid.options().max_gpulets_per_gpu, d.grid.sizes(),
                 d.grid.models());
      missed_ += others;
    }
    if (answer.status != packing_status::infeasible) return;
    contradicted_ += others;
#ifdef COHORT_HAS_CBC
    if (d.problem.gpus > 4) return;
    const partition_answer program =
        solve_partition_with_cbc(d.grid, d.problem, settings_.program_s, 20'000);
    ++programs_;
    agreed_ += program.status == packing_status::infeasible;
    if (program.status != packing_status::feasible) return;
    if (!verify(d.grid, d.problem, program.plan).empty()) return;
    fmt::print("  seed {}: called infeasible, and the integer program has a plan\n", seed);
    ++contradicted_;
#endif
  }

  /// @returns Whether all bars were met.
  bool report() {
    fmt::print("\n{:<28} {:>7} {:>13} {:>9}\n", "packer", "served", "broken plans", "worst s");
    int broken = 0;
    for (const auto& [name, t] : names_) {
      fmt::print("{:<28} {:>7} {:>13} {:>9.3f}\n", name, t->served, t->broken, t->worst_s);
      broken += t->broken;
    }
    std::ranges::sort(seconds_);
    const auto n = seconds_.size();
    fmt::print(
        "\nexact: median {:.2g} s, 90 % within {:.2g} s, 95 % within {:.2g} s, all within "
        "{:.3g} s\n",
        seconds_[n / 2], seconds_[n * 9 / 10], seconds_[n * 95 / 100], seconds_.back());
    fmt::print(
        "exact: {} served, {} infeasible, {} unknown; integer programs: {} run, {} agreed, "
        "none else had a plan unless named\n",
        rows_[7].served, infeasible_, unknown_, programs_, agreed_);
    judge("plans that break a rule", broken, 0);
    judge("unknown, percent", 100.0 * unknown_ / static_cast<double>(settings_.count),
          settings_.quick ? 100 : 2);
    judge("unknown, but another packer has a plan", missed_, 0);
    judge("infeasible, but another packer or the program has a plan", contradicted_, 0);
    judge("answers without a bound", without_bound_, 0);
    return met_;
  }

 private:
  template <class Packer>
  bool solve(tally& t, std::uint64_t seed, const cohort::bench::drawn_demand& d,
             const Packer& packer) {
    const auto start = clock_type::now();
    const packing_result r = packer(d.grid, d.problem);
    t.worst_s = std::max(t.worst_s, seconds_since(start));
    if (!r.schedulable()) return false;
    ++t.served;
    for (const std::string& what : verify(d.grid, d.problem, r.plan)) {
      fmt::print("  seed {}: PLAN BREAKS A RULE: {}\n", seed, what);
      ++t.broken;
    }
    return true;
  }
  void judge(std::string_view what, double figure, double most) {
    met_ = met_ && figure <= most;
    fmt::print("  {:<58} {:>6.3g}   bar at most {:<4} {}\n", what, figure, most,
               figure <= most ? "met" : "MISSED");
  }

  settings settings_;
  std::vector<tally> rows_ = std::vector<tally>(8);
  std::vector<std::pair<std::string_view, const tally*>> names_{
      {"squishy (where 100 is a size)", &rows_[0]},
      {"squishy-even (where 50 is)", &rows_[1]},
      {"self-tuning", &rows_[2]},
      {"elastic", &rows_[3]},
      {"elastic by rate-slo", &rows_[4]},
      {"ideal, 1 s", &rows_[5]},
      {"portfolio", &rows_[6]},
      {"exact", &rows_[7]}};
  std::vector<double> seconds_;
  int infeasible_ = 0;
  int unknown_ = 0;
  int missed_ = 0;
  int contradicted_ = 0;
  int programs_ = 0;
  int agreed_ = 0;
  int without_bound_ = 0;
  bool met_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  const settings s = read_settings(argc, argv);
  fmt::print(
      "{} demands from seed {}: 1 to {} devices, 1 to 4 gpu-lets a device, 1 to {} models, "
      "loads of {} to {} of the bound by work; exact has {} s each\n",
      s.count, s.first, s.draw.most_gpus, s.draw.most_models, s.draw.least_load, s.draw.most_load,
      s.limit_s);
  run all{s};
  for (std::uint64_t i = 0; i < s.count; ++i) all.demand(s.first + i);
  return all.report() ? 0 : 1;
}
