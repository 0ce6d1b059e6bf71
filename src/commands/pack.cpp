// SPDX-License-Identifier: Apache-2.0
#include <drawings/plan_picture.hpp>
#include <drawings/table.hpp>
#include <formats/demand_file.hpp>
#include <formats/json_writer.hpp>
#include <formats/naming.hpp>
#include <formats/profile_dir.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/pack_algorithm.hpp>
#include "commands.hpp"
#include "progress.hpp"

#include <cohort/packing/model/burst_margin.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/work_bound.hpp>
#include <cohort/sim/plans/plan_simulation.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::commands {
namespace {

using packing::latency_grid;
using packing::packing_problem;
using packing::packing_result;

constexpr const char* status_names[] = {"feasible", "infeasible", "unknown"};

/// Grids are rebuilt only when their inputs change from one demand to the next.
class grid_cache {
 public:
  grid_cache(const profile_dir& profiles, bool padded) : profiles_{profiles}, padded_{padded} {}

  const latency_grid& get(const demand& d) {
    if (!grid_ || d.sizes != sizes_ || d.slos_ms != slos_ms_ ||
        d.max_gpulets_per_gpu != grid_->options().max_gpulets_per_gpu) {
      sizes_ = d.sizes;
      slos_ms_ = d.slos_ms;
      std::vector<packing::model_profile> models = models_for(d, profiles_);
      packing::grid_options options{.sizes = d.sizes, .max_gpulets_per_gpu = d.max_gpulets_per_gpu};
      if (padded_) options.pad_for = profiles_.interference;
      grid_ = std::make_shared<const latency_grid>(std::move(models), std::move(options));
    }
    return *grid_;
  }
  [[nodiscard]] std::shared_ptr<const latency_grid> shared() const { return grid_; }

 private:
  const profile_dir& profiles_;
  bool padded_;
  std::vector<std::uint32_t> sizes_;
  std::vector<double> slos_ms_;
  std::shared_ptr<const latency_grid> grid_;
};

struct packed {
  packing_result result{};
  double seconds = 0;
  std::optional<std::vector<sim::plan_counts>> simulated{};  ///< By model.
  std::vector<sim::plan_counts> end_to_end{};                ///< By application.
};

/// Settings for every demand.
struct pack_job {
  const pack_algorithm& algorithm;
  profile_dir profiles;
  packing::burst_margin margin{};
  std::optional<double> simulate_s{};
  std::uint64_t seed = 1;
};

packing_problem problem_of(const demand& d, packing::slo_rule rule) {
  return {.gpus = d.gpus, .rule = rule, .memory_mb = d.memory_mb, .rates_rps = d.rates_rps};
}

/// Simulates the plan under Poisson arrivals at the demanded rates, with planned interference.
void simulate(const pack_job& job, const demand& d, const latency_grid& grid, packed& a) {
  std::vector<double> apart = d.rates_rps;  // Without the applications' rates.
  for (const named_application& app : d.applications) {
    app.what.graph.for_each_model(
        [&](model_id m, double times) { apart[m.index()] -= app.what.rate_rps * times; });
  }
  const auto steady = [](double rate) {
    return sim::plan_simulation::source{[rate](double) { return rate; }, rate};
  };
  std::vector<sim::plan_simulation::source> sources;
  for (std::size_t i = 0; i < apart.size(); ++i) {
    const bool rounding = apart[i] <= 1e-9 * d.rates_rps[i];
    sources.push_back(steady(rounding ? 0 : apart[i]));
  }
  sim::plan_simulation s{grid, std::move(sources),
                         job.algorithm.interference ? job.profiles.interference : std::nullopt,
                         job.seed};
  for (const named_application& app : d.applications) {
    s.add_application(app.what, steady(app.what.rate_rps));
  }
  s.install(a.result.plan);
  s.run(1e3 * *job.simulate_s);
  a.simulated = s.counts();
  a.end_to_end = s.end_to_end();
}

/// The assumption under which an answer was proven, if it differs from the question; else empty.
std::string what_was_proven(const pack_job& job, const demand& d, const packing_problem& problem) {
  std::string of;
  if (job.algorithm.padded) {
    grid_cache plain{job.profiles, false};
    // Some demands are impossible with or without padding.
    if (!refuse_impossible(plain.get(d), problem).reason.empty()) return of;
    of = "under worst-neighbour padding: --pad none may serve it";
  }
  if (job.margin.deviations > 0) {
    if (!of.empty()) of += "; ";
    of += "of the rates with their burst margin";
  }
  return of;
}

/// Refuses demands unsuitable for the algorithm or the simulation, before any planning.
/// @param where Names the demand in errors.
void check_demand(const std::string& where, const pack_options& o, const pack_job& job,
                  const demand& d) {
  const std::string& algorithm = job.algorithm.name;
  if (const std::uint32_t parts = job.algorithm.traits.parts; parts != 0) {
    if (std::ranges::find(d.sizes, 100 / parts) == d.sizes.end()) {
      fail(where + ": $.sizes", fmt::format("[{}]", fmt::join(d.sizes, ",")),
           fmt::format("{} among them for {}", 100 / parts, algorithm));
    }
    if (parts > d.max_gpulets_per_gpu) {
      fail(where + ": $.max_gpulets_per_gpu", fmt::to_string(d.max_gpulets_per_gpu),
           fmt::format("at least {} for {}", parts, algorithm));
    }
  }
  if (!job.simulate_s) return;
  double rate = 0;
  for (const double r : d.rates_rps) rate += r;
  if (rate * *job.simulate_s > most_requests) {
    fail("--simulate-s", *o.simulate_s,
         fmt::format("at most {} for {}: {} requests at {} a second", most_requests / rate, where,
                     most_requests, rate));
  }
}

packed solve(const pack_job& job, const demand& d, grid_cache& grids) {
  const pack_algorithm& algorithm = job.algorithm;
  using clock = std::chrono::steady_clock;
  const latency_grid& grid = grids.get(d);
  packing_problem problem = problem_of(d, algorithm.rule);
  problem.rates_rps = job.margin.plan_rps(grid, std::move(problem.rates_rps));
  const clock::time_point start = clock::now();
  packed a{.result = algorithm.run(grids.shared(), problem, job.profiles.interference)};
  a.seconds = std::chrono::duration<double>(clock::now() - start).count();
  // The bound is for the rates with their margin. For t times the demand these grow at most by t
  // and at least by its root (the reverse if t is below 1).
  if (job.margin.deviations > 0 && a.result.bound) {
    const double bound = *a.result.bound;
    a.result.bound = std::min(bound < 1 ? bound : bound * bound,
                              packing::work_bound(grid, problem_of(d, algorithm.rule)));
  }
  if (a.result.status == packing::packing_status::infeasible) {
    const std::string of = what_was_proven(job, d, problem);
    if (!of.empty()) a.result.reason += fmt::format(" ({})", of);
  }
  // Without padding a plan's own gpu-lets may break it.
  if (a.result.schedulable() && algorithm.interference && !algorithm.padded) {
    const auto broken = verify(grid, problem, a.result.plan, job.profiles.interference);
    if (!broken.empty()) {
      a.result = {.reason = "with interference, " + broken.front(), .bound = a.result.bound};
    }
  }
  if (job.simulate_s && a.result.schedulable()) simulate(job, d, grid, a);
  return a;
}

double violation_rate(const std::vector<sim::plan_counts>& counts) {
  sim::plan_counts all;
  for (const sim::plan_counts& c : counts) {
    all.completed += c.completed;
    all.violated += c.violated;
  }
  return all.violation_rate();
}

void write_answer(json_writer& out, const pack_job& job, const demand& d, const packed& a,
                  json_writer::layout layout) {
  const pack_algorithm& algorithm = job.algorithm;
  const profile_dir& profiles = job.profiles;
  using enum json_writer::layout;
  const packing_result& r = a.result;
  out.begin_object(layout)
      .field("algorithm", algorithm.name)
      .field("schedulable", r.schedulable())
      .field("status", status_names[static_cast<std::size_t>(r.status)])
      .key("bound");
  r.bound ? out.value(*r.bound) : out.null();
  out.key("reason");
  r.reason.empty() ? out.null() : out.value(r.reason);
  out.field("seconds", a.seconds)
      .field("gpus", d.gpus)
      .field("max_gpulets_per_gpu", d.max_gpulets_per_gpu)
      .key("sizes")
      .begin_array(line);
  for (const std::uint32_t pct : d.sizes) out.value(pct);
  out.end_array();
  if (std::isfinite(d.memory_mb)) out.field("memory_mb", d.memory_mb);
  out.key("slo_ms").begin_object(line);
  for (const std::size_t i : d.named) out.field(profiles.models[i].name, d.slos_ms[i]);
  out.end_object()
      .field("interference", algorithm.interference)
      .field("slo_rule", algorithm.rule == packing::slo_rule::own ? "own" : "sum")
      .key("demand")
      .begin_object(line);
  for (const std::size_t i : d.named) out.field(profiles.models[i].name, d.rates_rps[i]);
  out.end_object().key("gpulets").begin_array(layout);
  for (const packing::gpulet& g : r.plan) {
    out.begin_object(line)
        .field("gpu", g.gpu.value())
        .field("size", g.size.percent())
        .field("duty_ms", g.duty_ms)
        .key("models")
        .begin_array();
    for (const packing::placed_model& m : g.models) {
      out.begin_object()
          .field("model", profiles.models[m.model.index()].name)
          .field("batch", m.batch)
          .field("rate", m.rate_rps)
          .end_object();
    }
    out.end_array().end_object();
  }
  out.end_array();
  if (job.margin.deviations > 0) out.field("burst_margin", job.margin.deviations);
  if (a.simulated) {
    out.key("simulated")
        .begin_object(line)
        .field("seconds", *job.simulate_s)
        .field("violation_rate", violation_rate(*a.simulated))
        .key("per_model")
        .begin_object();
    for (const std::size_t i : d.named) {
      out.field(profiles.models[i].name, (*a.simulated)[i].violation_rate());
    }
    out.end_object();
    if (!d.applications.empty()) {
      out.key("per_application").begin_object();
      for (std::size_t i = 0; i < d.applications.size(); ++i) {
        out.field(d.applications[i].name, a.end_to_end[i].violation_rate());
      }
      out.end_object();
    }
    out.end_object();
  }
  out.end_object();
}

int pack_scenarios(const pack_options& o, const pack_job& job) {
  const std::string text = read_file(*o.scenarios);
  const std::string name = input_name(*o.scenarios);
  std::vector<demand> demands;
  std::vector<std::string> places;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = std::string_view{text}.substr(at, end - at);
    at = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    places.push_back(fmt::format("{}: line {}", name, line));
    demands.push_back(parse_demand(places.back(), row, job.profiles));
    check_demand(places.back(), o, job, demands.back());
  }
  if (demands.empty()) throw input_error{name + ": no lines: expected at least one demand"};

  grid_cache grids{job.profiles, job.algorithm.padded};
  bool all = true;
  std::string answers;  // Printed when all are valid: no partial output before an error.
  progress_bar bar{job.algorithm.name, "demands"};
  for (std::size_t i = 0; i < demands.size(); ++i) {
    const packed a = naming(places[i], [&] { return solve(job, demands[i], grids); });
    all = all && a.result.schedulable();
    json_writer out;
    write_answer(out, job, demands[i], a, json_writer::layout::line);
    answers += out.take();
    const auto done = static_cast<double>(i + 1);
    bar.update(done / static_cast<double>(demands.size()), done);
  }
  print(answers);
  return all ? 0 : 1;
}

/// A schedule has its own algorithm and rule: options without effect are refused.
void refuse_beside_verify(const pack_options& o) {
  constexpr const char* expected = "no such option with --verify";
  const auto absent = [&](const char* name, const text_option& value) {
    if (value) fail(name, quote_short(*value), expected);
  };
  absent("--algorithm", o.algorithm);
  absent("--order", o.order);
  absent("--knee", o.knee);
  absent("--fit", o.fit);
  absent("--pad", o.pad);
  absent("--time-limit-s", o.time_limit_s);
  absent("--svg", o.svg);
  absent("--simulate-s", o.simulate_s);
  if (o.interference) throw input_error{fmt::format("--interference: expected {}", expected)};
  // These always have a value, so a default cannot be told from a given value.
  const pack_options defaults;
  const auto unchanged = [&](const char* name, std::string pack_options::* value) {
    if (o.*value != defaults.*value) fail(name, quote_short(o.*value), expected);
  };
  unchanged("--slo-rule", &pack_options::slo_rule);
  unchanged("--burst-margin", &pack_options::burst_margin);
  unchanged("--seed", &pack_options::seed);
}

int pack_verify(const pack_options& o) {
  refuse_beside_verify(o);
  const std::string text = read_file(*o.verify);
  const std::string name = input_name(*o.verify);
  const profile_dir profiles = read_profile_dir(o.profiles, schedule_has_interference(name, text));
  print_warnings("cohort", profiles.repairs);
  const schedule s = parse_schedule(name, text, profiles);
  grid_cache grids{profiles, false};
  const std::vector<std::string> broken = naming(name, [&] {
    return verify(grids.get(s.demand), problem_of(s.demand, s.rule), s.plan,
                  s.interference ? profiles.interference : std::nullopt);
  });
  if (o.json) {
    json_writer out;
    out.begin_object().field("valid", broken.empty()).key("violations").begin_array();
    for (const std::string& b : broken) out.value(b);
    print(out.end_array().end_object().take());
  } else if (broken.empty()) {
    print("valid: every constraint holds\n");
  } else {
    std::string lines;
    for (const std::string& b : broken) lines += b + '\n';
    print(lines);
  }
  return broken.empty() ? 0 : 1;
}

}  // namespace

int pack_command(const pack_options& o) {
  const int inputs = !o.file.empty() + o.scenarios.has_value() + o.verify.has_value();
  if (inputs != 1) {
    throw input_error{
        "pack: expected one of DEMAND.json, --scenarios FILE.jsonl and --verify FILE"};
  }
  if (o.verify) return pack_verify(o);
  const pack_algorithm algorithm = choose_algorithm(o);
  if (o.svg) {
    if (o.scenarios) fail("--svg", quote_short(*o.svg), "no picture of several demands");
    check_writable(*o.svg);
  }
  pack_job job{.algorithm = algorithm, .profiles = {}, .seed = parse_integer("--seed", o.seed, {})};
  job.margin.deviations = parse_number("--burst-margin", o.burst_margin, {.low = 0, .high = 100});
  if (o.simulate_s) {
    job.simulate_s =
        parse_number("--simulate-s", *o.simulate_s, {.low = 0, .high = 1e6, .above_low = true});
  }
  job.profiles = read_profile_dir(o.profiles, algorithm.interference);
  print_warnings("cohort", job.profiles.repairs);
  if (o.scenarios) return pack_scenarios(o, job);

  const std::string name = input_name(o.file);
  const demand d = parse_demand(name, read_file(o.file), job.profiles);
  check_demand(name, o, job, d);
  grid_cache grids{job.profiles, algorithm.padded};
  const packed a = naming(name, [&] { return solve(job, d, grids); });
  if (o.svg && a.result.schedulable()) {
    write_file(*o.svg, plan_svg(grids.get(d), d.gpus, a.result.plan));
  }
  if (o.json) {
    json_writer out;
    write_answer(out, job, d, a, json_writer::layout::lines);
    print(out.take());
  } else if (a.result.schedulable()) {
    const std::string bound =
        a.result.bound && std::isfinite(*a.result.bound)
            ? fmt::format("; no more than {:.4g} times the demand can be served", *a.result.bound)
            : "";
    print(fmt::format("{}: schedulable, {} % of a GPU in use{}\n\n{}", algorithm.name,
                      packing::used_pct(a.result.plan), bound,
                      plan_text(grids.get(d), d.gpus, a.result.plan)));
    if (a.simulated) {
      print(fmt::format("\nsimulated for {} s: {} of the requests late or dropped\n", *o.simulate_s,
                        percent(violation_rate(*a.simulated))));
      for (std::size_t i = 0; i < d.applications.size(); ++i) {
        print(fmt::format("{}: {} of its requests late or failed, end to end\n",
                          d.applications[i].name, percent(a.end_to_end[i].violation_rate())));
      }
    }
  } else {
    print(fmt::format("{}: not schedulable ({}): {}\n", algorithm.name,
                      status_names[static_cast<std::size_t>(a.result.status)], a.result.reason));
  }
  return a.result.schedulable() ? 0 : 1;
}

}  // namespace cohort::commands
