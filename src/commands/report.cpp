// SPDX-License-Identifier: Apache-2.0
#include <drawings/chart.hpp>
#include <drawings/table.hpp>
#include <formats/csv.hpp>
#include <formats/json_reader.hpp>
#include <formats/text.hpp>
#include "commands.hpp"
#include "fit.hpp"
#include "policy_panels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::commands {
namespace {

struct run_of_model {
  std::string name;
  double slo_ms;
  std::vector<double> quantiles_ms;
};

/// A load run's data for the page.
struct load_run {
  std::string name;
  std::string executor;
  double asked, offered, duration, goodput, bad, p50, p99, batch, busy;
  std::uint64_t sent, verified, wrong;
  std::vector<run_of_model> models;
  std::vector<std::pair<std::uint64_t, double>> batches;
  std::vector<double> good_per_second;
};

// Wide enough for any run, narrow enough to be drawn.
constexpr number_range any{.low = 0, .high = 1e12};
constexpr integer_range natural{};

/// A text that may be empty.
std::string text_of(const json_cursor& c) {
  if (c.value().type != json_value::kind::string) c.refuse("a text");
  return c.value().text.empty() ? "a server that does not describe itself" : c.value().text;
}

load_run read_run(const std::string& argument) {
  const auto [name, file] = split_named("--run", argument, "NAME=FILE.json");
  const json_value document = parse_json(file, read_file(file));
  const json_cursor root{file, document};
  const auto number = [&](const json_cursor& c, const char* field) {
    return c.require(field, "a number").number(any);
  };
  const json_cursor latency = root.require("latency_ms", "an object");
  const json_cursor verified = root.require("verified", "an object");
  load_run r{.name = name,
             .executor = text_of(root.require("executor", "a text")),
             .asked = number(root, "offered_rps"),
             .offered = 0,
             .duration = number(root, "duration_s"),
             .goodput = number(root, "goodput_rps"),
             .bad = number(root, "bad_rate"),
             .p50 = number(latency, "p50"),
             .p99 = number(latency, "p99"),
             .batch = number(root, "batch_p50"),
             .busy = number(root, "busy_fraction"),
             .sent = root.require("sent", "an integer").integer(natural),
             .verified = verified.require("answers", "an integer").integer(natural),
             .wrong = verified.require("wrong", "an integer").integer(natural),
             .models = {},
             .batches = {},
             .good_per_second = {}};
  // Based on requests really sent, so that offered × (1 − bad) is the goodput.
  if (r.duration > 0) r.offered = static_cast<double>(r.sent) / r.duration;
  for (const json_cursor& m : root.require("per_model", "models").items("models")) {
    run_of_model model{.name = m.require("name", "a text").string(),
                       .slo_ms = number(m, "slo_ms"),
                       .quantiles_ms = {}};
    for (const json_cursor& q : m.require("latency_quantiles_ms", "numbers").items("numbers")) {
      model.quantiles_ms.push_back(q.number(any));
    }
    r.models.push_back(std::move(model));
  }
  // A server without a description has no executor and no batches.
  const json_cursor batches = root.require("batches", "batches");
  const bool none =
      batches.value().type == json_value::kind::array && batches.value().items.empty();
  for (const json_cursor& b : none ? std::vector<json_cursor>{} : batches.items("batches")) {
    r.batches.emplace_back(b.require("up_to", "an integer").integer(natural), number(b, "count"));
  }
  for (const json_cursor& s : root.require("good_per_second", "numbers").items("numbers")) {
    r.good_per_second.push_back(s.number(any));
  }
  return r;
}

using profile_map = std::map<std::string, std::vector<fit_point>>;

profile_map read_profile(const std::string& dir) {
  const std::string file = dir + "/latency.csv";
  const std::string text = read_file(file);
  csv_reader rows{file, text, {"model", "batch", "partition_pct", "latency_ms"}};
  profile_map out;
  while (rows.next()) {
    if (parse_number(rows.place(2), rows.field(2), any) != 100) continue;
    out[rows.field(0)].push_back({static_cast<std::uint32_t>(parse_integer(
                                      rows.place(1), rows.field(1), {.low = 1, .high = 1 << 20})),
                                  parse_number(rows.place(3), rows.field(3), any)});
  }
  if (out.empty()) fail(file, "no rows", "profiles of whole devices (partition_pct 100)");
  return out;
}

std::string profile_charts(const profile_map& profiles) {
  std::string out;
  for (const auto& [name, points] : profiles) {
    const linear_fit fit = fit_line(points);
    chart c{
        .title = fmt::format("{}: l(b) = {:.3g} b + {:.3g} ms", name, fit.alpha_ms, fit.beta_ms),
        .x_label = "batch size b",
        .y_label = "latency, ms",
        .series = {},
        .x_marker_label = {}};
    chart_series measured{
        .name = "measured", .color = 0, .how = chart_series::style::points, .points = {}};
    chart_series line{.name = "fit", .color = palette_size - 1, .points = {}};
    double last = 0;
    for (const fit_point& p : points) {
      measured.points.emplace_back(p.batch, p.ms);
      last = std::max<double>(last, p.batch);
    }
    line.points = {{0, std::max(0.0, fit.beta_ms)}, {last, fit.alpha_ms * last + fit.beta_ms}};
    c.series = {line, measured};
    out += c.svg();
  }
  return out;
}

std::string latency_charts(const std::vector<load_run>& runs) {
  std::string out;
  for (const run_of_model& first : runs.front().models) {
    chart c{.title = first.name + ": latency of answered requests",
            .x_label = "latency from the intended send time, ms",
            .y_label = "share answered within, %",
            .series = {},
            .x_marker = first.slo_ms,
            .x_marker_label = fmt::format("SLO {:.4g} ms", first.slo_ms),
            .y_least = 100,
            .x_most = 1.25 * first.slo_ms};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (const run_of_model& m : runs[i].models) {
        if (m.name != first.name) continue;
        chart_series s{.name = runs[i].name, .color = i, .points = {{0, 0}}};
        for (std::size_t q = 0; q < m.quantiles_ms.size(); ++q) {
          s.points.emplace_back(m.quantiles_ms[q], static_cast<double>(q + 1));
        }
        c.series.push_back(std::move(s));
      }
    }
    out += c.svg();
  }
  return out;
}

std::string batch_chart(const std::vector<load_run>& runs) {
  bar_chart c{.title = "Batches sent, by size", .y_label = "batches", .labels = {}, .series = {}};
  std::size_t used = 0;
  for (const load_run& r : runs) {
    for (std::size_t i = 0; i < r.batches.size(); ++i) {
      if (r.batches[i].second > 0) used = std::max(used, i + 1);
    }
  }
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < used && i < runs.front().batches.size(); ++i) {
    const std::uint64_t bound = runs.front().batches[i].first;
    c.labels.push_back(bound == below + 1 ? fmt::format("{}", bound)
                                          : fmt::format("{}–{}", below + 1, bound));
    below = bound;
  }
  for (const load_run& r : runs) {
    std::vector<double> counts;
    for (std::size_t i = 0; i < used && i < r.batches.size(); ++i) {
      counts.push_back(r.batches[i].second);
    }
    c.series.emplace_back(r.name, std::move(counts));
  }
  return c.svg();
}

std::string time_chart(const std::vector<load_run>& runs) {
  chart c{.title = "Goodput over time",
          .x_label = "time, s",
          .y_label = "requests/s within SLO",
          .series = {},
          .x_marker_label = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    chart_series s{.name = runs[i].name, .color = i, .points = {}};
    for (std::size_t t = 0; t < runs[i].good_per_second.size(); ++t) {
      s.points.emplace_back(static_cast<double>(t) + 0.5, runs[i].good_per_second[t]);
    }
    c.series.push_back(std::move(s));
  }
  return c.svg();
}

std::string summary(const std::vector<load_run>& runs) {
  std::string out =
      "<table><tr><th>policy</th><th>offered r/s</th><th>goodput r/s</th><th>bad</th><th>p50 "
      "ms</th><th>p99 ms</th><th>median batch</th><th>device busy</th><th>answers "
      "checked</th></tr>";
  for (const load_run& r : runs) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
        "td><td>{}{}</td></tr>",
        escaped(r.name), fixed(r.offered, 1), fixed(r.goodput, 1), percent(r.bad), fixed(r.p50, 1),
        fixed(r.p99, 1), fixed(r.batch, 0), percent(r.busy), r.verified,
        r.wrong == 0 ? ", all right" : fmt::format(", {} wrong", r.wrong));
  }
  return out + "</table>";
}

void print_summary(const std::vector<load_run>& runs, const std::string& page) {
  table t{{"policy", "offered r/s", "goodput r/s", "bad", "p50 ms", "p99 ms", "median batch",
           "device busy", "answers checked"}};
  for (const load_run& r : runs) {
    t.add({r.name, fixed(r.offered, 1), fixed(r.goodput, 1), percent(r.bad), fixed(r.p50, 1),
           fixed(r.p99, 1), fixed(r.batch, 0), percent(r.busy),
           r.wrong == 0 ? fmt::format("{}, all right", r.verified)
                        : fmt::format("{}, {} wrong", r.verified, r.wrong)});
  }
  print(fmt::format("{}\nreport: {}\n", t.text(), page));
}

constexpr std::string_view style = R"(
:root{color-scheme:light dark;--ink:#1d2433;--soft:#667085;--line:#e4e7ec;--page:#fff;
--c0:#2563eb;--c1:#ea580c;--c2:#0d9488;--c3:#98a2b3}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaf0;--soft:#98a2b3;--line:#2c3444;--page:#12161f;
--c0:#6ea0ff;--c1:#ff9a5c}}
body{font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1320px;
margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}
p{max-width:90ch;color:var(--soft);margin:.3rem 0 1rem}
summary{cursor:pointer;margin:.8rem 0}details,.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{white-space:nowrap;padding:.45rem .7rem;border-bottom:1px solid var(--line);text-align:right}
th{color:var(--soft);font-weight:500;white-space:normal;vertical-align:bottom}th:first-child,td:first-child{text-align:left;font-weight:600}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:1rem}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg .title{font-size:13px;font-weight:600;fill:var(--ink)}
svg line.grid{stroke:var(--line)}svg .marker{stroke:var(--soft);stroke-dasharray:4 3}
svg path{stroke-width:2;stroke-linejoin:round}
.stroke0,.stroke1,.stroke2,.stroke3{fill:none}
.stroke0{stroke:var(--c0);stroke-width:4;opacity:.55}.stroke1{stroke:var(--c1);stroke-dasharray:9 4}
.stroke2{stroke:var(--c2);stroke-dasharray:2 4}.stroke3{stroke:var(--c3)}
.figure{background:#fff;padding:.5rem}.figure svg text{fill:inherit}
svg circle,svg .fill1,svg .fill2,svg .fill3{opacity:.85}
.fill0{fill:var(--c0)}.fill1{fill:var(--c1)}.fill2{fill:var(--c2)}.fill3{fill:var(--c3)}
)";

/// The charts, each below its caption, embedded in the file.
std::string figures(const std::vector<std::string>& named) {
  std::string out;
  for (const std::string& f : named) {
    const auto [caption, path] = split_named("--figure", f, "CAPTION=FILE.svg");
    const std::string svg = read_file(path);
    const std::size_t start = svg.find("<svg");
    if (start == std::string::npos || svg.find("<script") != std::string::npos) {
      throw input_error{fmt::format("--figure: {}: not a drawing", path)};
    }
    out += fmt::format("<h2>{}</h2><div class=\"figure\">{}</div>", escaped(caption),
                       svg.substr(start));
  }
  return out;
}

}  // namespace

int page_command(const page_options& o) {
  const profile_map profiles = read_profile(o.profile);
  std::vector<load_run> runs;
  for (const std::string& r : o.runs) runs.push_back(read_run(r));
  if (runs.size() > 4) fail("--run", fmt::format("{} runs", runs.size()), "at most 4");
  run_colors colors;
  for (const load_run& r : runs) (void)colors.of(r.name);
  const load_run& first = runs.front();
  const sweep_part swept = sweep_panel(o.sweep, colors);
  const std::string over_time = course_panel(o.course, colors);
  write_file(
      o.out,
      fmt::format(
          "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
          "content=\"width=device-width,initial-scale=1\"><title>cohort: load report</title>"
          "<style>{}</style></head><body><h1>{}</h1><p>A request is bad if its answer does not "
          "come "
          "within its model's SLO, counted from the moment at which it should have been sent. "
          "{}</p>{}{}<h2>Models computed on this machine</h2><p>{} models at {} requests/s, each "
          "policy for {} s on the {}.</p><div class=\"wide\">{}</div><details><summary>Latencies, "
          "batches and costs</summary><p>Requests right of the dashed line are late. Those that "
          "were refused or dropped are in no curve, but count as bad.</p><div "
          "class=\"grid\">{}</div><p>The requests of each batch, and the answers of each second "
          "that were in time.</p><div class=\"grid\">{}{}</div><p>What batches cost, measured "
          "before the runs.</p><div class=\"grid\">{}</div></details>{}</body></html>\n",
          style, swept.headline.empty() ? "Serving under an SLO" : escaped(swept.headline),
          escaped(o.made), swept.body, over_time, first.models.size(), decimal(first.asked, 1),
          decimal(first.duration, 1), escaped(first.executor), summary(runs), latency_charts(runs),
          batch_chart(runs), time_chart(runs), profile_charts(profiles), figures(o.figures)));
  print_summary(runs, o.out);
  return 0;
}

}  // namespace cohort::commands
