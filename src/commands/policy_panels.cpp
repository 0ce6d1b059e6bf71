// SPDX-License-Identifier: Apache-2.0
#include "policy_panels.hpp"

#include <drawings/chart.hpp>
#include <drawings/table.hpp>
#include <formats/csv.hpp>
#include <formats/json_reader.hpp>
#include <formats/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

namespace cohort::commands {
namespace {

constexpr number_range any{.low = 0, .high = 1e12};
constexpr integer_range natural{};
// The fraction of bad requests up to which a rate counts as served, as in `cohort goodput`.
constexpr double bad_limit = 0.01;

/// One load run, by requests sent: offered × (1 − bad) = in time.
struct rate_run {
  double offered_rps, good_rps, bad, p50, p99, send_delay_p99;
  std::vector<double> sent_by_second, good_by_second;
};
/// The same for a simulation.
struct rate_prediction {
  double offered_rps, bad, p50, p99;
};
template <class Run>
struct named_runs {
  std::string name;
  std::vector<Run> runs;
};

double number(const json_cursor& c, const char* field) {
  return c.require(field, "a number").number(any);
}
std::vector<double> numbers(const json_cursor& c, const char* field) {
  std::vector<double> out;
  for (const json_cursor& n : c.require(field, "numbers").items("numbers")) {
    out.push_back(n.number(any));
  }
  return out;
}

rate_run read_run(const json_cursor& root) {
  const auto sent = static_cast<double>(root.require("sent", "an integer").integer(natural));
  const auto good = static_cast<double>(root.require("good", "an integer").integer(natural));
  const double seconds =
      root.require("duration_s", "a number").number({.low = 0, .high = 1e5, .above_low = true});
  const json_cursor latency = root.require("latency_ms", "an object");
  return {.offered_rps = sent / seconds,
          .good_rps = good / seconds,
          .bad = sent > 0 ? std::max(0.0, 1 - good / sent) : 0,
          .p50 = number(latency, "p50"),
          .p99 = number(latency, "p99"),
          .send_delay_p99 = number(root, "send_delay_p99_ms"),
          .sent_by_second = numbers(root, "sent_per_second"),
          .good_by_second = numbers(root, "good_per_second")};
}

rate_prediction read_prediction(const json_cursor& root) {
  const json_cursor served = root.require("served_ms", "an object");
  return {.offered_rps = number(root, "offered_rps"),
          .bad = number(root, "bad_rate"),
          .p50 = number(served, "p50"),
          .p99 = number(served, "p99")};
}

/// Reads files; those with one name form a series by rising rate, in order of first occurrence.
template <class Run>
std::vector<named_runs<Run>> read_all(const char* option, const std::vector<std::string>& arguments,
                                      Run (*read)(const json_cursor&)) {
  std::vector<named_runs<Run>> out;
  for (const std::string& argument : arguments) {
    const auto [name, file] = split_named(option, argument, "NAME=FILE.json");
    const json_value document = parse_json(file, read_file(file));
    const json_cursor root{file, document};
    auto at = std::ranges::find(out, name, &named_runs<Run>::name);
    if (at == out.end()) at = out.insert(out.end(), {name, {}});
    at->runs.push_back(read(root));
  }
  for (named_runs<Run>& s : out) std::ranges::sort(s.runs, {}, &Run::offered_rps);
  return out;
}

using style = chart_series::style;

template <class Run, class Value>
void add_series(chart& c, const std::vector<named_runs<Run>>& all, const char* suffix, style how,
                run_colors& colors, Value value) {
  for (const named_runs<Run>& s : all) {
    chart_series line{
        .name = s.name + suffix, .color = colors.of(s.name), .how = how, .points = {}};
    for (const Run& r : s.runs) line.points.emplace_back(r.offered_rps, value(r));
    c.series.push_back(std::move(line));
  }
}

chart over_rates(const char* title, const char* y_label) {
  return {.title = title,
          .x_label = "offered, requests/s",
          .y_label = y_label,
          .series = {},
          .x_marker_label = {}};
}

constexpr auto bad_pct = [](const auto& r) { return 100 * r.bad; };
constexpr auto p50_ms = [](const auto& r) { return r.p50; };
constexpr auto p99_ms = [](const auto& r) { return r.p99; };

std::string sweep_charts(const std::vector<named_runs<rate_run>>& all, run_colors& colors) {
  const auto draw = [&](const char* title, const char* y_label, auto value) {
    chart c = over_rates(title, y_label);
    add_series(c, all, "", style::marked, colors, value);
    return c.svg();
  };
  return draw("Bad requests", "late, dropped or refused, %", bad_pct) +
         draw("Answered in time", "requests/s within SLO",
              [](const rate_run& r) { return r.good_rps; }) +
         draw("Median latency of answers", "p50, ms", p50_ms) +
         draw("Slowest answers", "p99, ms", p99_ms);
}

/// The rate at which the fraction of bad requests rises above the limit, interpolated between the
/// two runs around it. `is_more`: no run was above it. 0 if the first was.
struct served_rate {
  double rps = 0;
  bool is_more = true;
};
served_rate served_up_to(const named_runs<rate_run>& s) {
  served_rate out;
  double bad = 0;
  for (const rate_run& r : s.runs) {
    if (r.bad > bad_limit) {
      if (out.rps > 0) out.rps += (r.offered_rps - out.rps) * (bad_limit - bad) / (r.bad - bad);
      out.is_more = false;
      break;
    }
    out.rps = r.offered_rps;
    bad = r.bad;
  }
  return out;
}
std::string to_text(const served_rate& r) {
  if (r.rps == 0) return "no rate that was tried";
  return fmt::format("{}{} requests/s", r.is_more ? "more than " : "", fixed(r.rps, 0));
}

/// The generator's own lateness, in the worst run.
double worst_delay_ms(const std::vector<named_runs<rate_run>>& all) {
  double worst = 0;
  for (const named_runs<rate_run>& s : all) {
    for (const rate_run& r : s.runs) worst = std::max(worst, r.send_delay_p99);
  }
  return worst;
}
// With a larger delay the generator shared its machine, and so did the servers.
constexpr double busy_delay_ms = 5;

/// The page's headline: how much more load the last policy serves than the best of the others.
std::string headline_of(const std::vector<named_runs<rate_run>>& all) {
  if (worst_delay_ms(all) > busy_delay_ms) return "This machine was too busy for a conclusion";
  const named_runs<rate_run>& own = all.back();
  const served_rate most = served_up_to(own);
  const named_runs<rate_run>* best = nullptr;
  for (const named_runs<rate_run>& s : all) {
    if (&s == &own) continue;
    if (best == nullptr || served_up_to(s).rps > served_up_to(*best).rps) best = &s;
  }
  if (best == nullptr) return fmt::format("{} serves {}", own.name, to_text(most));
  const served_rate rival = served_up_to(*best);
  if (rival.rps == 0)
    return fmt::format("{} serves {}, {} none", own.name, to_text(most), best->name);
  const double gain = 100 * (most.rps / rival.rps - 1);
  return fmt::format("{} serves {}, {} % {} than {}", own.name, to_text(most),
                     fixed(std::abs(gain), 0), gain < 0 ? "fewer" : "more", best->name);
}

/// Counts wins and losses, rather than leaving them to the reader's eye.
std::string verdict(const std::vector<named_runs<rate_run>>& all) {
  std::string out = "With at most 1 % of requests bad: ";
  for (const named_runs<rate_run>& s : all) {
    out += fmt::format("{}{} {}", &s == all.data() ? "" : ", ", s.name, to_text(served_up_to(s)));
  }
  out += ".";
  const named_runs<rate_run>& last = all.back();
  for (const named_runs<rate_run>& s : all) {
    if (&s == &last || s.runs.size() != last.runs.size()) continue;
    const std::size_t n = s.runs.size();
    const auto lower = [&](double rate_run::* field) {
      std::size_t count = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (s.runs[i].*field < last.runs[i].*field) ++count;
      }
      return count;
    };
    out += fmt::format(
        " Against {}, {} has fewer bad requests at {} of {} rates, a lower p50 at {}, a lower p99 "
        "at {}.",
        last.name, s.name, lower(&rate_run::bad), n, lower(&rate_run::p50), lower(&rate_run::p99));
  }
  return out;
}

std::string sweep_table(const std::vector<named_runs<rate_run>>& all) {
  std::string out =
      "<table><tr><th>policy</th><th>offered r/s</th><th>in time r/s</th><th>bad</th><th>p50 "
      "ms</th><th>p99 ms</th></tr>";
  for (const named_runs<rate_run>& s : all) {
    for (const rate_run& r : s.runs) {
      out +=
          fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                      escaped(s.name), fixed(r.offered_rps, 1), fixed(r.good_rps, 1),
                      percent(r.bad), fixed(r.p50, 1), fixed(r.p99, 1));
    }
  }
  return out + "</table>";
}

/// Measurements at the rates with a prediction, and that prediction.
std::string prediction_part(const std::vector<named_runs<rate_run>>& all,
                            const std::vector<named_runs<rate_prediction>>& predicted,
                            run_colors& colors) {
  std::vector<named_runs<rate_run>> measured;
  for (const named_runs<rate_prediction>& p : predicted) {
    const auto at = std::ranges::find(all, p.name, &named_runs<rate_run>::name);
    if (at == all.end()) fail("--predicted", quote_short(p.name), "a name of --sweep");
    measured.push_back(*at);
  }
  const auto draw = [&](const char* title, const char* y_label, auto value) {
    chart c = over_rates(title, y_label);
    add_series(c, predicted, ", predicted", style::line, colors, value);
    add_series(c, measured, ", measured", style::points, colors, value);
    return c.svg();
  };
  return "<h2>Predicted and measured</h2><p>Each server was asked once, at a low rate, what it had "
         "learned of its models, devices and timers (GET /debug/workload). From that alone "
         "<i>cohort simulate</i> predicted every rate: lines are predicted, marks are measured. "
         "Clients "
         "measure a millisecond more or less than the simulator, which knows no HTTP before a "
         "request is read.</p><div class=\"grid\">" +
         draw("Bad requests", "late, dropped or refused, %", bad_pct) +
         draw("Median latency of answers", "p50, ms", p50_ms) +
         draw("Slowest answers", "p99, ms", p99_ms) + "</div>";
}

/// The conclusion from the charts, or the reason why there is none.
std::string conclusion(const std::vector<named_runs<rate_run>>& all) {
  const double worst = worst_delay_ms(all);
  const std::string noise = fmt::format(
      "In the worst run 99 % of requests were sent at most {} ms after they should have been; that "
      "is part of the latencies.",
      fixed(worst, 1));
  if (worst <= busy_delay_ms) return escaped(verdict(all)) + " " + noise;
  return noise + fmt::format(
                     " More than {} ms means that this machine did other work, too. So the curves "
                     "say more about it than about the policies: run it again when it is idle.",
                     fixed(busy_delay_ms, 0));
}

std::string factor_chart(const std::string& file, double x_marker, const std::string& label) {
  const std::string text = read_file(file);
  csv_reader rows{file, text, {"time_s", "device", "factor"}};
  std::map<std::uint64_t, std::vector<std::pair<double, double>>> by_device;
  while (rows.next()) {
    by_device[parse_integer(rows.place(1), rows.field(1), natural)].emplace_back(
        parse_number(rows.place(0), rows.field(0), any),
        parse_number(rows.place(2), rows.field(2), any));
  }
  chart c{.title = "What the server learned of its devices",
          .x_label = "time, s",
          .y_label = "time of batches, × the others'",
          .series = {},
          .x_marker = x_marker,
          .x_marker_label = label,
          .x_marker_label_above = true,
          .y_least = 2};
  std::size_t color = 0;
  for (auto& [device, points] : by_device) {
    c.series.push_back({.name = fmt::format("device {}", device),
                        .color = color++ % palette_size,
                        .how = style::steps,
                        .points = std::move(points)});
  }
  return c.svg();
}

}  // namespace

std::size_t run_colors::of(const std::string& name) {
  const auto index = static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin());
  if (index == names_.size()) names_.push_back(name);
  return index % palette_size;
}

std::pair<std::string, std::string> split_named(const char* option, const std::string& argument,
                                                const char* expected) {
  const std::size_t at = argument.find('=');
  if (at == std::string::npos || at == 0) fail(option, quote_short(argument), expected);
  return {argument.substr(0, at), argument.substr(at + 1)};
}

sweep_part sweep_panel(const sweep_options& o, run_colors& colors) {
  const auto all = read_all<rate_run>("--sweep", o.runs, read_run);
  const auto predicted = read_all<rate_prediction>("--predicted", o.predicted, read_prediction);
  if (all.empty()) {
    if (!predicted.empty()) fail("--predicted", quote_short(o.predicted.front()), "a --sweep");
    return {};
  }
  std::string out = fmt::format(
      "<p>{}</p><p>{}</p><div class=\"grid\">{}</div><p>A policy can take the more load, the later "
      "its curve of bad requests leaves the bottom. A batch costs little more than a single "
      "request, so a device that waits a little for more requests may answer more of them in "
      "time.</p><details><summary>All figures</summary>{}<p>Offered is what was really sent, by "
      "chance a little more or less than the rate asked for. Every request has its answer or its "
      "end before a run is counted: offered × (1 − bad) = in time. Latencies are of answers; what "
      "was dropped or refused has none.</p></details>",
      escaped(o.setting), conclusion(all), sweep_charts(all, colors), sweep_table(all));
  if (!predicted.empty()) out += prediction_part(all, predicted, colors);
  return {.headline = headline_of(all), .body = std::move(out)};
}

std::string course_panel(const course_options& o, run_colors& colors) {
  const auto all = read_all<rate_run>("--course", o.runs, read_run);
  if (all.empty()) return "";
  double event_at = 0;
  std::string event;
  if (!o.event.empty()) {
    const auto [at, text] = split_named("--event", o.event, "SECONDS=TEXT");
    event_at = parse_number("--event", at, any);
    event = text;
  }
  chart c{.title = "Bad requests of each second",
          .x_label = "time, s",
          .y_label = "late, dropped or refused, %",
          .series = {},
          .x_marker = event_at,
          .x_marker_label = event,
          .x_marker_label_above = true};
  std::string sums;
  for (const named_runs<rate_run>& s : all) {
    for (const rate_run& r : s.runs) {
      chart_series line{
          .name = s.name, .color = colors.of(s.name), .how = style::marked, .points = {}};
      double sent[2] = {0, 0};
      double good[2] = {0, 0};
      for (std::size_t t = 0; t < std::min(r.sent_by_second.size(), r.good_by_second.size()); ++t) {
        const double middle = static_cast<double>(t) + 0.5;
        const std::size_t half = middle < event_at ? 0 : 1;
        sent[half] += r.sent_by_second[t];
        good[half] += r.good_by_second[t];
        const double n = std::max(1.0, r.sent_by_second[t]);
        line.points.emplace_back(middle, 100 * std::max(0.0, 1 - r.good_by_second[t] / n));
      }
      c.series.push_back(std::move(line));
      sums += fmt::format(" {}: {} bad before, {} after.", escaped(s.name),
                          percent(sent[0] > 0 ? 1 - good[0] / sent[0] : 0),
                          percent(sent[1] > 0 ? 1 - good[1] / sent[1] : 0));
    }
  }
  std::string charts = c.svg();
  if (!o.learned.empty()) charts += factor_chart(o.learned, event_at, event);
  return fmt::format(
      "<h2>A device becomes slow</h2><p>{} requests/s all along. The servers are not told what "
      "happens at the dashed line; they see only how long batches take.{}</p><div "
      "class=\"grid\">{}</div>",
      fixed(all.front().runs.front().offered_rps, 0), sums, charts);
}

}  // namespace cohort::commands
