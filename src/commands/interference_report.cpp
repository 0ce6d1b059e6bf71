// SPDX-License-Identifier: Apache-2.0
#include "interference_report.hpp"

#include <drawings/chart.hpp>
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include "commands.hpp"
#include "pair_turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace cohort::commands {
namespace {

using formats::measured_neighbour;
using line_layout = json_writer::layout;

std::set<model_pair> pairs_in(const interference_run& r) {
  std::set<model_pair> pairs;
  for (const measured_neighbour& row : r.rows) pairs.insert(pair_of(row));
  return pairs;
}

double middle_noise(const interference_run& r) {
  std::vector<double> noise;
  for (const measured_neighbour& row : r.rows) noise.push_back(row.noise);
  return noise.empty() ? 0 : middle_of(std::move(noise));
}

std::string percentiles(const packing::interference_error& e) {
  return fmt::format("p50 {:.1f} %, p90 {:.1f} %, p95 {:.1f} %", 100 * e.p50, 100 * e.p90,
                     100 * e.p95);
}

void write_error(json_writer& out, const char* name, const packing::interference_error& e) {
  out.key(name)
      .begin_object(line_layout::line)
      .field("p50", e.p50)
      .field("p90", e.p90)
      .field("p95", e.p95)
      .end_object();
}

std::string fit_text(const interference_fit& f) {
  if (!f.model) {
    return fmt::format("no fit: {}; elastic-int plans by the pairs themselves\n", f.why_not);
  }
  const packing::interference_model& m = *f.model;
  std::string out = fmt::format(
      "fit to {} pairs of models: factor = {:.3f} l2_self {:+.3f} l2_other {:+.3f} dram_self "
      "{:+.3f} dram_other {:+.3f}, at least 1\n",
      f.fitted, m.l2_self, m.l2_other, m.memory_self, m.memory_other, m.constant);
  if (f.told.empty()) return out + "its error is not known: no pair could be held back\n";
  out += fmt::format("relative error on {} factors of {} pairs {}: {}\n", f.told.size(), f.held,
                     f.one_by_one ? "held back one by one" : "held back", percentiles(f.error));
  out += fmt::format("that of saying that nobody slows anybody down: {}\n", percentiles(f.ignored));
  if (f.error.p90 >= f.ignored.p90) out += "so at p90 the fit tells no more than that\n";
  return out;
}

}  // namespace

std::string interference_json(const interference_run& r, const profile_dir& profiles) {
  const auto& models = profiles.models;
  json_writer out;
  out.begin_object()
      .field("device", r.device)
      .field("pairs", r.pairs)
      .field("seed", r.seed)
      .field("possible_pairs", r.possible)
      .field("measured_pairs", pairs_in(r).size())
      .field("noise_p50", middle_noise(r))
      .key("fit");
  if (const interference_fit& f = r.fit; f.model) {
    out.begin_object()
        .key("coefficients")
        .begin_object(line_layout::line)
        .field("c_l2_self", f.model->l2_self)
        .field("c_l2_other", f.model->l2_other)
        .field("c_dram_self", f.model->memory_self)
        .field("c_dram_other", f.model->memory_other)
        .field("constant", f.model->constant)
        .end_object()
        .field("fitted_pairs", f.fitted)
        .field("held_back_pairs", f.held)
        .field("one_by_one", f.one_by_one)
        .field("held_back_factors", f.told.size());
    if (!f.told.empty()) {
      write_error(out, "error", f.error);
      write_error(out, "error_if_ignored", f.ignored);
    }
    out.end_object();
  } else {
    out.null().field("why_no_fit", f.why_not);
  }
  std::map<std::size_t, double> predicted;
  for (const foretold& t : r.fit.told) predicted.emplace(t.row, t.predicted);
  out.key("measured").begin_array();
  for (std::size_t i = 0; i < r.rows.size(); ++i) {
    const measured_neighbour& row = r.rows[i];
    out.begin_object(line_layout::line)
        .field("model", models[row.self.model].name)
        .field("batch", row.self.batch)
        .field("partition_pct", row.self.size_pct)
        .field("other", models[row.other.model].name)
        .field("other_batch", row.other.batch)
        .field("other_partition_pct", row.other.size_pct)
        .field("alone_ms", row.alone_ms)
        .field("beside_ms", row.beside_ms)
        .field("factor", row.factor)
        .field("noise", row.noise)
        .field("turns", row.turns);
    if (const auto at = predicted.find(i); at != predicted.end()) {
      out.field("predicted", at->second);
    }
    out.end_object();
  }
  return out.end_array().end_object().take();
}

std::string interference_text(const interference_run& r, const profile_dir& profiles) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> factors;
  for (const measured_neighbour& row : r.rows) {
    factors[{row.self.model, row.other.model}].push_back(row.factor);
  }
  table t{{"model", "beside", "cases", "least", "median", "most"}};
  for (const auto& [pair, of] : factors) {
    t.add({profiles.models[pair.first].name, profiles.models[pair.second].name,
           fmt::to_string(of.size()), fixed(*std::ranges::min_element(of), 3),
           fixed(middle_of(of), 3), fixed(*std::ranges::max_element(of), 3)});
  }
  return fmt::format(
      "{} of {} pairs of models on {}: how many times longer a batch takes next to another\n\n{}\n"
      "solo runs with one turn between them differ by {:.1f} % in the median: smaller effects are "
      "not seen\n{}",
      pairs_in(r).size(), r.possible, r.device.empty() ? "nothing" : r.device, t.text(),
      100 * middle_noise(r), fit_text(r.fit));
}

std::string interference_svg(const interference_run& r, const profile_dir& profiles) {
  using style = chart_series::style;
  chart_series held{.name = "held back", .color = 1, .how = style::points, .points = {}};
  chart_series seen{.name = "fitted to", .color = 0, .how = style::points, .points = {}};
  std::set<std::size_t> told;
  double least = 1;
  double most = 1;
  const auto add = [&](chart_series& to, std::size_t row, double predicted) {
    const double measured = r.rows[row].factor;
    to.points.emplace_back(measured, predicted);
    least = std::min({least, measured, predicted});
    most = std::max({most, measured, predicted});
  };
  for (const foretold& x : r.fit.told) {
    told.insert(x.row);
    add(held, x.row, x.predicted);
  }
  const auto usage = [&](const formats::placed_batch& b) {
    return packing::usage_of(profiles.models[b.model], b.batch, b.size_pct);
  };
  for (std::size_t i = 0; i < r.rows.size() && r.fit.model; ++i) {
    const measured_neighbour& row = r.rows[i];
    const bool counted = !profiles.models[row.self.model].usage.empty() &&
                         !profiles.models[row.other.model].usage.empty();
    if (counted && !told.contains(i)) {
      add(seen, i, r.fit.model->factor(usage(row.self), usage(row.other)));
    }
  }
  chart c{.title = "Interference: how many times longer a batch takes",
          .x_label = "measured",
          .y_label = "predicted",
          .series = {{.name = "equal", .color = 3, .how = style::line, .points = {}}},
          .x_marker_label = {},
          .from = std::floor(10 * least) / 10};
  c.series[0].points = {{c.from, c.from}, {most, most}};
  if (!seen.points.empty()) c.series.push_back(std::move(seen));
  if (!held.points.empty()) c.series.push_back(std::move(held));
  return as_file(c.svg());
}

std::string coefficients_csv(const packing::interference_model& m) {
  return fmt::format("c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\n{},{},{},{},{}\n",
                     m.l2_self, m.l2_other, m.memory_self, m.memory_other, m.constant);
}

}  // namespace cohort::commands
