// SPDX-License-Identifier: Apache-2.0
// Question: how does `adaptive`, tuned and not, compare with the best of its rivals on workloads
// drawn at random, with and without noise?
//   sim.sweep N SEED [OUT.md]    draws SEED to SEED + N - 1, one line each added to OUT.jsonl,
//   where
//                                those that are there already are not run again; then tables, to
//                                standard output and OUT.md, by default sweep-SEED.md in --results
//                                DIR (build/results), with --jobs J threads (the cores)
//   sim.sweep --only SEED        one draw, printed
//   sim.sweep --workload SEED    one draw as a WORKLOAD.json
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <registry/policy.hpp>

#include <cohort/sim/goodput.hpp>

#include "drawn_workload.hpp"
#include "sweep_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <variant>
#include <vector>

namespace {
using namespace cohort;
using formats::input_error;
using registry::policy;

/// Of each model in each run, but for chance.
constexpr double requests_of_a_model = 2000;
/// And of all, unless that takes less than 4 or more than 20 s.
constexpr double requests_of_a_run = 500'000;
constexpr double precision = 0.005;
constexpr double highest_rate = 1e7;
/// The least part of the rate that a model has.
double least_share(const sim::workload& w) { return std::ranges::min(w.normalised_shares()); }

/// Goodput in the sense of `cohort goodput`, of one seed. Of clean draws each model's share of bad
/// requests is judged, at 1 %. With noise some model may miss that at any rate, for 0.3 % of its
/// batches are late five times over: there it is the share of all, at 2 %.
sim::search_options search_of(const bench::wide_workload& x) {
  sim::search_options o{.precision = precision, .seeds = 1};
  if (x.noise != bench::noise_class::clean) {
    o.bad_limit = 0.02;
    o.judge = sim::judged::total;
  }
  return o;
}

/// The highest rate of this policy, in runs that are as long as the workload says, and as each rate
/// asks for: else every rate far below the peak would be judged by single requests.
double goodput(const policy& p, const sim::workload& w, const sim::search_options& o) {
  const double least = least_share(w);
  return sim::find_goodput(w, o, highest_rate,
                           [&](sim::workload load, const sim::run_options& r) {
                             const double s = requests_of_a_model / (least * r.rate);
                             load.measured = std::max(load.measured, from_seconds(s));
                             return registry::run_policy(p, load, r, [](time_point) {});
                           })
      .goodput;
}

/// A draw, made ready to be searched.
struct prepared_draw {
  bench::wide_workload drawn;
  sim::search_options how;
};

/// About the rate that eager or deferred reaches says how long runs are; searches start there, too.
prepared_draw prepare(std::uint64_t seed) {
  prepared_draw out{bench::draw_wide_workload(seed), {}};
  sim::workload& w = out.drawn.workload;
  out.how = search_of(out.drawn);
  w.measured = std::chrono::seconds{2};
  sim::search_options rough = out.how;
  rough.precision = 0.1;
  for (const policy& p : registry::parse_policies("eager,deferred", {})) {
    out.how.guess = std::max(out.how.guess, goodput(p, w, rough));
  }
  const double rate = out.how.guess > 0 ? out.how.guess : w.devices / sim::staggered_load(w);
  const double length = std::max(requests_of_a_model / (least_share(w) * rate),
                                 std::clamp(requests_of_a_run / rate, 4.0, 20.0));
  w.measured = from_seconds(std::ceil(10 * length) / 10);
  w.warmup = std::max<duration>(std::chrono::seconds{2}, w.measured / 5);
  return out;
}

bench::sweep_draw run_draw(std::uint64_t seed) {
  const prepared_draw draw = prepare(seed);
  const sim::workload& w = draw.drawn.workload;
  bench::sweep_draw out{.seed = seed,
                        .name = draw.drawn.name,
                        .noise = std::string{bench::name_of(draw.drawn.noise)},
                        .duration_s = to_seconds(w.measured),
                        .runs = {}};
  const auto add = [&](const policy& p, std::string_view name) {
    out.runs.push_back({std::string{name}, std::string{p.gather_name()}, goodput(p, w, draw.how)});
  };
  add(registry::parse_policies("adaptive", {.tune = "off"}).front(), bench::untuned_name);
  add(registry::parse_policies("adaptive", {}).front(), bench::tuned_name);
  for (const policy& rival : registry::parse_searched_policies(
           "deferred,eager,timeout:0.1,timeout:0.2,timeout:0.35,timeout:0.5", {})) {
    for (const policy& variant : registry::gather_variants(rival)) add(variant, variant.name);
  }
  out.least_requests =
      std::floor(least_share(w) * out.best_rival().goodput * to_seconds(w.measured));
  return out;
}

/// What is to be done, and what is said of it.
struct sweep_options {
  std::uint64_t first = 1;
  std::uint64_t count = 1;
  std::string table;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
};

std::string minutes(double s) {
  return fmt::format("{}:{:02}", static_cast<int>(s) / 60, static_cast<int>(s) % 60);
}

void sweep(const sweep_options& o) {
  const std::string lines = std::filesystem::path{o.table}.replace_extension("jsonl").string();
  formats::check_writable(o.table);
  std::vector<bench::sweep_draw> done = bench::read_draws(lines);
  std::erase_if(done, [&](const bench::sweep_draw& d) {
    return d.seed < o.first || d.seed - o.first >= o.count;
  });
  std::vector<std::uint64_t> open;
  for (std::uint64_t seed = o.first; seed - o.first < o.count; ++seed) {
    if (std::ranges::find(done, seed, &bench::sweep_draw::seed) == done.end()) {
      open.push_back(seed);
    }
  }
  fmt::print(stderr, "{} of {} draws are in {}\n", done.size(), o.count, lines);

  using clock = std::chrono::steady_clock;
  const clock::time_point start = clock::now();
  std::ofstream file{lines, std::ios::app};
  std::mutex mutex;  // Of file and done.
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < open.size();) {
      bench::sweep_draw d = run_draw(open[i]);
      const std::lock_guard lock{mutex};
      file << bench::to_line(d) << std::flush;
      done.push_back(std::move(d));
      const double elapsed = std::chrono::duration<double>{clock::now() - start}.count();
      const std::size_t here = done.size() + open.size() - o.count;
      const std::size_t left = open.size() - here;
      fmt::print(stderr, "{}/{}, {} elapsed, about {} left; {}: {:.3f}\n", done.size(), o.count,
                 minutes(elapsed),
                 minutes(elapsed / static_cast<double>(here) * static_cast<double>(left)),
                 done.back().name, done.back().over_rivals(bench::tuned_name));
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < o.jobs; ++i) helpers.emplace_back(work);
    work();
  }
  if (!file) throw input_error{lines + ": cannot be written"};
  const std::string tables = bench::sweep_tables(done);
  formats::write_file(o.table, tables);
  formats::print(tables);
}

void print_draw(std::uint64_t seed) {
  const bench::sweep_draw d = run_draw(seed);
  drawings::table t{{"policy", "gather", "goodput r/s"}};
  for (const bench::sweep_run& r : d.runs) {
    t.add({r.policy, r.gather, drawings::decimal(r.goodput, 3)});
  }
  formats::print(fmt::format(
      "{}: {}\nruns of {} s\n\n{}\nadaptive over the best rival: {:.3f}, tuned {:.3f}\n", d.seed,
      d.name, d.duration_s, t.text(), d.over_rivals(bench::untuned_name),
      d.over_rivals(bench::tuned_name)));
}

/// The draw as a WORKLOAD.json, for `cohort`.
void print_workload(std::uint64_t seed) {
  using formats::json_writer;
  const sim::workload w = prepare(seed).drawn.workload;
  static constexpr std::array processes{"poisson", "gamma", "uniform"};
  json_writer out;
  out.begin_object().field("devices", w.devices).key("models").begin_array();
  for (const sim::model_spec& m : w.models) {
    const auto& line = std::get<linear_latency>(m.latency);
    out.begin_object(json_writer::layout::line)
        .field("name", m.name)
        .field("alpha_ms", to_ms(line.per_request))
        .field("beta_ms", to_ms(line.fixed))
        .field("slo_ms", to_ms(m.slo))
        .end_object();
  }
  out.end_array()
      .key("arrivals")
      .begin_object(json_writer::layout::line)
      .field("process", processes.at(static_cast<std::size_t>(w.arrivals)))
      .field("shape", w.shape)
      .end_object()
      .field("popularity", w.shares == sim::popularity::zipf ? "zipf" : "equal")
      .field("warmup_s", to_seconds(w.warmup))
      .field("duration_s", to_seconds(w.measured));
  if (const noise_options& n = w.reality.noise; !n.is_none()) {
    out.key("reality")
        .begin_object()
        .key("noise")
        .begin_object(json_writer::layout::line)
        .field("sigma", n.sigma)
        .field("bias", n.bias)
        .field("bias_spread", n.bias_spread)
        .field("straggler_share", n.straggler_share)
        .field("straggler_factor", n.straggler_factor)
        .end_object()
        .end_object();
  }
  formats::print(out.end_object().take());
}

constexpr formats::integer_range seeds{.low = 0, .high = 1'000'000'000};

int run(const std::vector<std::string>& arguments) {
  static constexpr std::string_view usage =
      "N SEED [OUT.md] [--jobs J] [--results DIR], --only SEED or --workload SEED";
  std::vector<std::string> plain;
  std::string results = "build/results";
  sweep_options o;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (!a.starts_with("--")) {
      plain.push_back(a);
      continue;
    }
    if (a != "--jobs" && a != "--results" && a != "--only" && a != "--workload") {
      throw input_error{fmt::format("got {}, expected {}", formats::quote_short(a), usage)};
    }
    if (++i == arguments.size()) throw input_error{a + ": missing: expected a value"};
    if (a == "--jobs") {
      o.jobs =
          static_cast<unsigned>(formats::parse_integer(a, arguments[i], {.low = 1, .high = 1024}));
      continue;
    }
    if (a == "--results") {
      results = arguments[i];
      continue;
    }
    const std::uint64_t seed = formats::parse_integer(a, arguments[i], seeds);
    a == "--only" ? print_draw(seed) : print_workload(seed);
    return 0;
  }
  if (plain.size() < 2 || plain.size() > 3)
    throw input_error{fmt::format("missing: expected {}", usage)};
  o.count = formats::parse_integer("N", plain[0], {.low = 1, .high = 1'000'000});
  o.first = formats::parse_integer("SEED", plain[1], seeds);
  if (plain.size() == 3) {
    o.table = plain[2];
  } else {
    std::error_code ignored;  // If there is no folder, the file says so.
    std::filesystem::create_directories(results, ignored);
    o.table = fmt::format("{}/sweep-{}.md", results, o.first);
  }
  sweep(o);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const input_error& e) {
    fmt::print(stderr, "sweep: {}\n", e.what());
    return 2;
  }
}
