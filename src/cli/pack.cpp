// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "demand_file.hpp"
#include "json_writer.hpp"
#include "pack_algorithm.hpp"
#include "plan_picture.hpp"
#include "profile_dir.hpp"
#include "progress.hpp"
#include "text.hpp"

#include <cohort/packing/latency_grid.hpp>
#include <cohort/packing/verify.hpp>

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::cli {
namespace {

using packing::latency_grid;
using packing::packing_problem;
using packing::packing_result;

constexpr const char* status_names[] = {"feasible", "infeasible", "unknown"};

/// Grids are made anew only when what they depend on changes from one demand to the next.
class grid_cache {
 public:
  grid_cache(const profile_dir& profiles, bool padded) : profiles_{profiles}, padded_{padded} {}

  const latency_grid& get(const demand& d) {
    if (!grid_ || d.sizes != sizes_ || d.slos_ms != slos_ms_ ||
        d.max_gpulets_per_gpu != grid_->options().max_gpulets_per_gpu) {
      sizes_ = d.sizes;
      slos_ms_ = d.slos_ms;
      std::vector<packing::model_profile> models = profiles_.models;
      for (std::size_t i = 0; i < models.size(); ++i) models[i].slo_ms = d.slos_ms[i];
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

struct answer {
  packing_result result;
  double seconds = 0;
};

packing_problem problem_of(const demand& d, packing::slo_rule rule) {
  return {.gpus = d.gpus, .rule = rule, .memory_mb = d.memory_mb, .rates_rps = d.rates_rps};
}

answer solve(const pack_algorithm& algorithm, const demand& d, grid_cache& grids,
             const profile_dir& profiles) {
  using clock = std::chrono::steady_clock;
  const latency_grid& grid = grids.get(d);
  const packing_problem problem = problem_of(d, algorithm.rule);
  const clock::time_point start = clock::now();
  answer a{.result = algorithm.run(grids.shared(), problem)};
  a.seconds = std::chrono::duration<double>(clock::now() - start).count();
  // Without padding a plan may be broken by its own neighbours.
  if (a.result.schedulable() && algorithm.interference && !algorithm.padded) {
    const auto broken = verify(grid, problem, a.result.plan, profiles.interference);
    if (!broken.empty()) {
      a.result = {.reason = "with interference, " + broken.front(), .bound = a.result.bound};
    }
  }
  return a;
}

void write_answer(json_writer& out, const pack_algorithm& algorithm, const demand& d,
                  const profile_dir& profiles, const answer& a, json_writer::layout layout) {
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
  bool own_slos = false;
  for (std::size_t i = 0; i < profiles.models.size(); ++i) {
    if (d.slos_ms[i] == profiles.models[i].slo_ms) continue;
    if (!std::exchange(own_slos, true)) out.key("slo_ms").begin_object(line);
    out.field(profiles.models[i].name, d.slos_ms[i]);
  }
  if (own_slos) out.end_object();
  out.field("interference", algorithm.interference)
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
  out.end_array().end_object();
}

int pack_scenarios(const pack_options& o, const pack_algorithm& algorithm,
                   const profile_dir& profiles) {
  const std::string text = read_file(*o.scenarios);
  const std::string name = *o.scenarios == "-" ? "standard input" : *o.scenarios;
  std::vector<demand> demands;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = std::string_view{text}.substr(at, end - at);
    at = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    demands.push_back(parse_demand(fmt::format("{}: line {}", name, line), row, profiles));
  }
  if (demands.empty()) throw input_error{name + ": no lines: expected at least one demand"};

  grid_cache grids{profiles, algorithm.padded};
  bool all = true;
  progress_bar bar{algorithm.name, "demands"};
  for (std::size_t i = 0; i < demands.size(); ++i) {
    const answer a = solve(algorithm, demands[i], grids, profiles);
    all = all && a.result.schedulable();
    json_writer out;
    write_answer(out, algorithm, demands[i], profiles, a, json_writer::layout::line);
    print(out.take());
    const auto done = static_cast<double>(i + 1);
    bar.update(done / static_cast<double>(demands.size()), done);
  }
  return all ? 0 : 1;
}

int pack_verify(const pack_options& o) {
  const std::string text = read_file(*o.verify);
  const std::string name = *o.verify == "-" ? "standard input" : *o.verify;
  const profile_dir profiles = read_profile_dir(o.profiles, schedule_has_interference(name, text));
  const schedule s = parse_schedule(name, text, profiles);
  grid_cache grids{profiles, false};
  const std::vector<std::string> broken =
      verify(grids.get(s.demand), problem_of(s.demand, s.rule), s.plan,
             s.interference ? profiles.interference : std::nullopt);
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
  const profile_dir profiles = read_profile_dir(o.profiles, algorithm.interference);
  if (o.scenarios) return pack_scenarios(o, algorithm, profiles);

  const std::string name = o.file == "-" ? "standard input" : o.file;
  const demand d = parse_demand(name, read_file(o.file), profiles);
  grid_cache grids{profiles, algorithm.padded};
  const answer a = solve(algorithm, d, grids, profiles);
  if (o.svg && a.result.schedulable()) {
    write_file(*o.svg, plan_svg(grids.get(d), d.gpus, a.result.plan));
  }
  if (o.json) {
    json_writer out;
    write_answer(out, algorithm, d, profiles, a, json_writer::layout::lines);
    print(out.take());
  } else if (a.result.schedulable()) {
    print(fmt::format("{}: schedulable, {} % of a GPU in use\n\n{}", algorithm.name,
                      packing::used_pct(a.result.plan),
                      plan_text(grids.get(d), d.gpus, a.result.plan)));
  } else {
    print(fmt::format("{}: not schedulable ({}): {}\n", algorithm.name,
                      status_names[static_cast<std::size_t>(a.result.status)], a.result.reason));
  }
  return a.result.schedulable() ? 0 : 1;
}

}  // namespace cohort::cli
