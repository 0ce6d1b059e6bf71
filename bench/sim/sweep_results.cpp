// SPDX-License-Identifier: Apache-2.0
#include "sweep_results.hpp"

#include <drawings/table.hpp>
#include <formats/json_reader.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <utility>

namespace cohort::bench {
namespace {

using formats::json_cursor;
using formats::json_writer;

bool is_rival(const sweep_run& r) { return r.policy != untuned_name && r.policy != tuned_name; }

sweep_draw parse_draw(const json_cursor& at) {
  sweep_draw d;
  const auto text = [](const json_cursor& c, std::string_view name) {
    return c.require(name, "a text").string();
  };
  d.seed = at.require("seed", "an integer").integer({});
  d.name = text(at, "draw");
  d.noise = text(at, "noise");
  d.duration_s = at.require("duration_s", "a number").number({});
  d.least_requests = at.require("least_requests", "a number").number({});
  for (const json_cursor& run : at.require("runs", "an array").items("runs")) {
    d.runs.push_back({text(run, "policy"), text(run, "gather"),
                      run.require("goodput_rps", "a number").number({})});
  }
  for (const std::string_view name : {untuned_name, tuned_name}) {
    if (std::ranges::find(d.runs, name, &sweep_run::policy) == d.runs.end() ||
        std::ranges::none_of(d.runs, is_rival)) {
      at.refuse("runs of adaptive, tuned and not, and of a rival");
    }
  }
  return d;
}

/// A row of Markdown.
std::string row_of(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += fmt::format(" {} |", cell);
  return out + '\n';
}

/// Geometric mean, worst and how many are at least 1, of the draws that can be judged.
std::string summary(std::string_view what, std::span<const sweep_draw> draws, std::string_view of) {
  double logs = 0;
  std::size_t judged = 0;
  std::size_t as_good = 0;
  const sweep_draw* worst = nullptr;
  for (const sweep_draw& d : draws) {
    if (d.best_rival().goodput <= 0) continue;
    const double ratio = d.over_rivals(of);
    logs += std::log(ratio);
    ++judged;
    as_good += ratio >= 1 ? 1U : 0U;
    if (worst == nullptr || ratio < worst->over_rivals(of)) worst = &d;
  }
  std::vector<std::string> cells{std::string{of}, std::string{what}, fmt::to_string(judged)};
  if (worst == nullptr) {
    cells.insert(cells.end(), 4, "");
  } else {
    cells.insert(cells.end(), {drawings::fixed(std::exp(logs / static_cast<double>(judged)), 3),
                               drawings::fixed(worst->over_rivals(of), 3),
                               fmt::to_string(worst->seed), fmt::to_string(as_good)});
  }
  return row_of(cells);
}

}  // namespace

const sweep_run& sweep_draw::best_rival() const {
  const sweep_run* best = nullptr;
  for (const sweep_run& r : runs) {
    if (is_rival(r) && (best == nullptr || r.goodput > best->goodput)) best = &r;
  }
  return *best;
}

double sweep_draw::over_rivals(std::string_view run_name) const {
  return std::ranges::find(runs, run_name, &sweep_run::policy)->goodput / best_rival().goodput;
}

std::string to_line(const sweep_draw& d) {
  json_writer out;
  out.begin_object(json_writer::layout::line)
      .field("seed", d.seed)
      .field("draw", d.name)
      .field("noise", d.noise)
      .field("duration_s", d.duration_s)
      .field("least_requests", d.least_requests)
      .key("runs")
      .begin_array();
  for (const sweep_run& r : d.runs) {
    out.begin_object()
        .field("policy", r.policy)
        .field("gather", r.gather)
        .field("goodput_rps", r.goodput)
        .end_object();
  }
  return out.end_array().end_object().take();
}

std::vector<sweep_draw> read_draws(const std::string& path) {
  std::vector<sweep_draw> out;
  if (!std::filesystem::exists(path)) return out;
  std::string text = formats::read_file(path);
  if (const std::size_t whole = text.rfind('\n') + 1; whole != text.size()) {
    text.resize(whole);
    formats::write_file(path, text);
  }
  std::size_t number = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from);
    const std::string where = fmt::format("{}, line {}", path, ++number);
    const formats::json_value line =
        formats::parse_json(where, std::string_view{text}.substr(from, end - from));
    out.push_back(parse_draw(json_cursor{where, line}));
    from = end + 1;
  }
  return out;
}

std::string sweep_tables(std::span<const sweep_draw> draws) {
  std::vector<sweep_draw> noisy;
  std::vector<std::pair<std::string, std::vector<sweep_draw>>> classes;
  for (const sweep_draw& d : draws) {
    if (d.noise != "clean") noisy.push_back(d);
    auto of_class = std::ranges::find(classes, d.noise, [](const auto& c) { return c.first; });
    if (of_class == classes.end()) of_class = classes.insert(classes.end(), {d.noise, {}});
    of_class->second.push_back(d);
  }
  std::ranges::sort(classes, {}, [](const auto& c) { return c.first; });

  std::string out = row_of({"over the best rival", "draws", "judged", "geometric mean", "worst",
                            "its seed", "at least 1"});
  out += "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n";
  for (const std::string_view of : {tuned_name, untuned_name}) {
    out += summary("all", draws, of);
    for (const auto& [noise, members] : classes) {
      if (noise == "clean") out += summary(noise, members, of);
    }
    out += summary("with noise", noisy, of);
    for (const auto& [noise, members] : classes) {
      if (noise != "clean") out += summary(noise, members, of);
    }
  }
  out += '\n' + row_of({"seed", "draw", "s", "least requests", "best rival", "gather", "r/s",
                        "adaptive", "tuned", "tuned over rival"});
  out += "| ---: | --- | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |\n";
  std::vector<const sweep_draw*> ordered;
  for (const sweep_draw& d : draws) ordered.push_back(&d);
  std::ranges::sort(ordered, {}, &sweep_draw::seed);
  for (const sweep_draw* d : ordered) {
    const sweep_run& best = d->best_rival();
    const auto goodput = [&](std::string_view name) {
      return drawings::decimal(std::ranges::find(d->runs, name, &sweep_run::policy)->goodput, 3);
    };
    out += row_of({fmt::to_string(d->seed), d->name, drawings::decimal(d->duration_s, 1),
                   drawings::decimal(d->least_requests, 0), best.policy, best.gather,
                   drawings::decimal(best.goodput, 3), goodput(untuned_name), goodput(tuned_name),
                   best.goodput > 0 ? drawings::fixed(d->over_rivals(tuned_name), 3) : "no rate"});
  }
  return out;
}

}  // namespace cohort::bench
