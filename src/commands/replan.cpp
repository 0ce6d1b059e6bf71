// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <drawings/wave_picture.hpp>
#include <formats/demand_file.hpp>
#include <formats/json_writer.hpp>
#include <formats/load_file.hpp>
#include <formats/naming.hpp>
#include <formats/profile_dir.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/pack_algorithm.hpp>
#include "commands.hpp"
#include "progress.hpp"

#include <cohort/sim/plans/closed_loop.hpp>
#include <cohort/sim/plans/load_curve.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::commands {
namespace {

using packing::latency_grid;

constexpr number_range lengths_s{.low = 0, .high = 1e6, .above_low = true};

/// Poisson arrivals of every model: its rate times the load, with each model's load slightly later
/// than that of the previous one. @param load Null: two waves.
std::vector<sim::plan_simulation::source> sources_of(
    const demand& d, const std::shared_ptr<const sim::load_curve>& load, double length_s,
    double phase_s) {
  std::vector<sim::plan_simulation::source> sources(d.rates_rps.size());
  double shift = 0;
  for (const std::size_t i : d.named) {
    const double full = d.rates_rps[i];
    const auto part = [load, length_s, shift](double at_ms) {
      const double at = at_ms / 1e3 - shift;
      return load ? (*load)(at) : sim::two_waves(at, length_s);
    };
    sources[i] = {[full, part](double at_ms) { return full * part(at_ms); },
                  full * (load ? load->most() : 1.0)};
    shift += phase_s;
  }
  return sources;
}

/// Limits the requests, as each is simulated. @throws input_error If there may be too many.
void check_length(const std::string& name, const std::vector<sim::plan_simulation::source>& sources,
                  double length_s) {
  double rate = 0;
  for (const sim::plan_simulation::source& source : sources) rate += source.most_rps;
  if (rate * length_s <= most_requests) return;
  fail(fmt::format("{}: $.demand", name), fmt::format("{} requests a second", rate),
       fmt::format("at most {}: {} requests within the {} s of the run", most_requests / length_s,
                   most_requests, length_s));
}

double sum(const std::vector<double>& values) {
  double all = 0;
  for (const double x : values) all += x;
  return all;
}

/// Requests that had not ended at the end of the run.
std::uint64_t waiting_of(const sim::plan_counts& c) { return c.arrived - c.completed - c.violated; }

struct totals {
  std::uint64_t arrived = 0;
  std::uint64_t completed = 0;
  std::uint64_t violated = 0;
  std::uint64_t waiting = 0;  ///< At the end of the run: neither completed nor violated.
  std::size_t plans = 0;
  std::size_t loads = 0;
  double used_pct = 0;  ///< Mean over periods.
  std::uint32_t least_pct = 0;
  std::uint32_t most_pct = 0;
};

totals totals_of(const sim::closed_loop_result& r) {
  totals t{.least_pct = r.periods.front().used_pct};
  for (const sim::plan_counts& c : r.total) {
    t.arrived += c.arrived;
    t.completed += c.completed;
    t.violated += c.violated;
    t.waiting += waiting_of(c);
  }
  for (const sim::closed_loop_period& p : r.periods) {
    t.plans += p.replanned ? 1 : 0;
    t.loads += p.loads;
    t.used_pct += p.used_pct;
    t.least_pct = std::min(t.least_pct, p.used_pct);
    t.most_pct = std::max(t.most_pct, p.used_pct);
  }
  t.used_pct /= static_cast<double>(r.periods.size());
  return t;
}

struct run_settings {
  std::string algorithm;
  sim::closed_loop_options loop;
  demand asked;
  std::vector<std::string> names;  ///< Names of all models of the folder.
};

std::string answer_json(const run_settings& s, const sim::closed_loop_result& r) {
  using enum json_writer::layout;
  const totals t = totals_of(r);
  json_writer out;
  out.begin_object()
      .field("algorithm", s.algorithm)
      .field("seed", s.loop.seed)
      .field("gpus", s.asked.gpus)
      .field("length_s", s.loop.length_ms / 1e3)
      .field("period_s", to_seconds(s.loop.replan.period))
      .field("reorganization_s", s.loop.transition_ms / 1e3)
      .field("margin", s.loop.margin)
      .field("burst_margin", s.loop.burst.deviations)
      .field("arrived", t.arrived)
      .field("completed", t.completed)
      .field("violated", t.violated)
      .field("waiting", t.waiting)
      .field("violation_rate", r.violation_rate)
      .field("plans", t.plans)
      .field("loads", t.loads)
      .field("interrupted", r.interrupted)
      .field("planned_part", r.missing.part)
      .key("reason");
  r.missing.reason.empty() ? out.null() : out.value(r.missing.reason);
  out.key("left_out").begin_array();
  for (const auto& [model, reason] : r.missing.left_out) {
    out.begin_object(line).field("name", s.names[model]).field("reason", reason).end_object();
  }
  out.end_array()
      .key("used_pct")
      .begin_object(line)
      .field("least", t.least_pct)
      .field("mean", t.used_pct)
      .field("most", t.most_pct)
      .end_object()
      .key("per_model")
      .begin_array();
  for (const std::size_t i : s.asked.named) {
    out.begin_object(line)
        .field("name", s.names[i])
        .field("arrived", r.total[i].arrived)
        .field("completed", r.total[i].completed)
        .field("violated", r.total[i].violated)
        .field("waiting", waiting_of(r.total[i]))
        .end_object();
  }
  out.end_array().key("periods").begin_array();
  for (const sim::closed_loop_period& p : r.periods) {
    out.begin_object(line).field("end_s", p.end_s).key("arrived_rps").begin_object();
    for (const std::size_t i : s.asked.named) out.field(s.names[i], p.arrived_rps[i]);
    out.end_object()
        .field("completed_rps", p.completed_rps)
        .field("violation_rate", p.violation_rate)
        .field("used_pct", p.used_pct)
        .field("planned_part", p.planned_part)
        .field("replanned", p.replanned)
        .field("loads", p.loads)
        .end_object();
  }
  return out.end_array().end_object().take();
}

/// The demand that no plan could serve, a line each; empty if all was served.
std::string missing_text(const run_settings& s, const packing::shortfall& missing) {
  std::string text;
  for (const auto& [model, reason] : missing.left_out) {
    text += fmt::format("left out: {} ({})\n", s.names[model], reason);
  }
  if (missing.part < 1) {
    text += fmt::format("planned for at the least: {} of the load ({})\n", percent(missing.part),
                        missing.reason);
  }
  return text.empty() ? text : text + "\n";
}

std::string answer_text(const run_settings& s, const sim::closed_loop_result& r) {
  constexpr std::size_t most_rows = 18;
  const totals t = totals_of(r);
  std::string text = fmt::format(
      "{} on {}, {} s, a decision every {} s, {} s from a decision to its plan\n\n"
      "{} requests: {} late or dropped ({})\n{} plans, {} models loaded for them, {} interrupted\n"
      "partitions in use: {} to {} % of a GPU, {} % on average\n\n",
      s.algorithm, counted(s.asked.gpus, "GPU"), s.loop.length_ms / 1e3,
      to_seconds(s.loop.replan.period), s.loop.transition_ms / 1e3, grouped(t.arrived),
      grouped(t.violated), percent(r.violation_rate), t.plans, t.loads, r.interrupted, t.least_pct,
      t.most_pct, decimal(t.used_pct, 1));
  table rows{{"end s", "r/s arrived", "r/s in time", "in use %", "late or dropped"}};
  const std::size_t step = (r.periods.size() + most_rows - 1) / most_rows;
  for (std::size_t i = 0; i < r.periods.size(); i += step) {
    const sim::closed_loop_period& p = r.periods[i];
    rows.add({decimal(p.end_s, 1), fixed(sum(p.arrived_rps), 1), fixed(p.completed_rps, 1),
              fmt::to_string(p.used_pct), percent(p.violation_rate)});
  }
  return text + missing_text(s, r.missing) + rows.text();
}

}  // namespace

int replan_command(const replan_options& o) {
  const pack_algorithm algorithm = choose_algorithm(o.pack);
  sim::closed_loop_options loop{.seed = parse_integer("--seed", o.pack.seed, {})};
  loop.length_ms = 1e3 * parse_number("--length-s", o.length_s, lengths_s);
  const double period_s =
      parse_number("--period-s", o.period_s, {.low = 0.001, .high = loop.length_ms / 1e3});
  loop.replan.period =
      std::chrono::duration_cast<duration>(std::chrono::duration<double>{period_s});
  loop.transition_ms =
      1e3 * parse_number("--reorganization-s", o.reorganization_s, {.low = 0, .high = 1e6});
  if (loop.transition_ms >= 1e3 * period_s) {
    fail("--reorganization-s", o.reorganization_s, "less than --period-s");
  }
  loop.margin = parse_number("--margin", o.margin, {.low = 0, .high = 100});
  loop.burst.deviations =
      parse_number("--burst-margin", o.pack.burst_margin, {.low = 0, .high = 100});
  const double length_s = loop.length_ms / 1e3;
  const double phase_s = parse_number("--phase-s", o.phase_s, {.low = 0, .high = 1e6});
  if (o.pack.svg) check_writable(*o.pack.svg);
  if (o.load == "-" && o.pack.file == "-") {
    fail("--load", quote("-"), "a file, since DEMAND is standard input");
  }
  std::shared_ptr<const sim::load_curve> load;
  if (o.load) load = std::make_shared<const sim::load_curve>(read_load_curve(*o.load));

  const profile_dir profiles = read_profile_dir(o.pack.profiles, algorithm.interference);
  print_warnings("cohort", profiles.repairs);
  const std::string name = input_name(o.pack.file);
  run_settings s{.algorithm = algorithm.name,
                 .loop = loop,
                 .asked = parse_demand(name, read_file(o.pack.file), profiles),
                 .names = {}};
  const demand& d = s.asked;
  for (const packing::model_profile& m : profiles.models) s.names.push_back(m.name);
  packing::grid_options shape{.sizes = d.sizes, .max_gpulets_per_gpu = d.max_gpulets_per_gpu};
  if (algorithm.padded) shape.pad_for = profiles.interference;
  const auto grid = naming(name, [&] {
    return std::make_shared<const latency_grid>(models_for(d, profiles), std::move(shape));
  });
  const std::optional<packing::interference_model> interference =
      algorithm.interference ? profiles.interference : std::nullopt;

  const std::vector<sim::plan_simulation::source> sources = sources_of(d, load, length_s, phase_s);
  check_length(name, sources, length_s);

  progress_bar bar{algorithm.name, "periods"};
  const double periods = length_s / period_s;
  double planned = 0;  // The packer runs about once a period, if it can serve all.
  const auto packer = [&](const latency_grid&, const packing::packing_problem& p) {
    planned = std::min(planned + 1, periods);
    bar.update(planned / periods, planned);
    return algorithm.run(grid, p, interference);
  };
  const sim::closed_loop_result r = naming(name, [&] {
    return sim::run_closed_loop(
        *grid, {.gpus = d.gpus, .rule = algorithm.rule, .memory_mb = d.memory_mb, .rates_rps = {}},
        sources, interference, packer, loop);
  });
  if (o.pack.svg) {
    write_file(*o.pack.svg, wave_svg(s.names, d.named, d.gpus, r));
  }
  print(o.pack.json ? answer_json(s, r) : answer_text(s, r));
  return 0;
}

}  // namespace cohort::commands
