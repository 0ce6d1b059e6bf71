// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/naming.hpp>
#include <formats/staged_model_file.hpp>
#include <formats/text.hpp>
#include <formats/trace_writer.hpp>
#include <registry/staged_policy.hpp>
#include "commands.hpp"
#include "progress.hpp"
#include "run_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

constexpr integer_range request_counts{.low = 1, .high = 10'000'000};

std::vector<sim::staged_arrival> read_arrivals(const pipeline_command_options& o,
                                               const staged_model_spec& m, std::uint64_t seed) {
  if (o.arrivals) {
    if (o.rate) fail("--rate", *o.rate, "no --rate: --arrivals says when requests come");
    if (o.lengths) fail("--lengths", quote_short(*o.lengths), "no --lengths with --arrivals");
    if (o.requests) fail("--requests", *o.requests, "no --requests with --arrivals");
    if (*o.arrivals == "-" && o.file == "-") {
      fail("--arrivals", "\"-\"", "a file, since standard input holds the model");
    }
    return parse_staged_arrivals(input_name(*o.arrivals), read_file(*o.arrivals), m);
  }
  if (!o.rate) throw input_error{"--rate: missing: expected --rate or --arrivals"};
  const double rate = parse_number("--rate", *o.rate, rates);
  const std::uint64_t requests =
      parse_integer("--requests", o.requests.value_or("30000"), request_counts);
  std::vector<std::uint32_t> lengths;
  if (o.lengths) {
    if (m.buckets.empty()) {
      fmt::print(stderr, "cohort: --lengths is not used, since the model has no sizes\n");
    }
    if (*o.lengths == "-" && o.file == "-") {
      fail("--lengths", "\"-\"", "a file, since standard input holds the model");
    }
    lengths = parse_lengths(input_name(*o.lengths), read_file(*o.lengths), m);
  } else if (!m.buckets.empty()) {
    throw input_error{"--lengths: missing: expected a file, since the model has sizes"};
  }
  if (static_cast<double>(requests) / rate > 1e9) {
    fail("--rate", *o.rate, "a rate at which the requests come within 1e9 s");
  }
  return draw_staged_arrivals(rate, requests, seed, lengths);
}

/// One row of the trace for each stage, or for each stage and buffer set.
std::string trace_text(const staged_model_spec& m, const sim::staged_result& r) {
  trace_writer out{"cohort pipeline"};
  const auto stages = static_cast<std::uint32_t>(m.stages.size());
  std::uint32_t rows = stages;
  for (const sim::staged_launch& l : r.launches) rows = std::max(rows, (l.lane + 1) * stages);
  for (std::uint32_t t = 0; t < rows; ++t) out.row(t, m.stages[t % stages].name);
  for (const sim::staged_launch& l : r.launches) {
    const std::string name = fmt::format("batch {} [{}, {})", l.order, l.first, l.first + l.count);
    out.span({.row = l.lane * stages + l.stage,
              .name = name,
              .category = m.stages[l.stage].name,
              .from = l.started,
              .to = l.ended},
             [&](json_writer& arguments) { arguments.field("size", l.count); });
  }
  return out.take();
}

/// The first items of a run as a timeline: a row for each stage and lane, a colour for each batch,
/// the slots of each item.
std::string timeline_svg(const staged_model_spec& m, const sim::staged_result& r) {
  constexpr std::size_t most = 200;
  constexpr double left = 90;
  constexpr double width = 860;
  constexpr double height = 26;
  constexpr const char* colours[] = {"#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db"};
  const auto stages = static_cast<std::uint32_t>(m.stages.size());
  const std::size_t shown = std::min(most, r.launches.size());
  double begin = 1e300;
  double end = 0;
  std::uint32_t rows = stages;
  for (std::size_t i = 0; i < shown; ++i) {
    const sim::staged_launch& l = r.launches[i];
    begin = std::min(begin, to_ms(l.started));
    end = std::max(end, to_ms(l.ended));
    rows = std::max(rows, (l.lane + 1) * stages);
  }
  const double scale = width / std::max(1e-9, end - begin);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      left + width + 20, rows * height + 50);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const double y = 14 + row * height;
    std::string name = m.stages[row % stages].name;
    std::erase_if(name, [](char c) { return c == '<' || c == '&' || c == '>'; });
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/><text "
        "x=\"{3}\" "
        "y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        left, left + width, y + height, left - 8, y + 17, name);
  }
  for (std::size_t i = 0; i < shown; ++i) {
    const sim::staged_launch& l = r.launches[i];
    const double x = left + (to_ms(l.started) - begin) * scale;
    const double wide = to_ms(l.ended - l.started) * scale;
    const double y = 16 + (l.lane * stages + l.stage) * height;
    out += fmt::format(
        "<g><title>batch {0}, slots {1} to {2}, {3:.3f} to {4:.3f} ms</title><rect x=\"{5:.2f}\" "
        "y=\"{6:.1f}\" width=\"{7:.2f}\" height=\"{8}\" fill=\"{9}\" stroke=\"#555\" "
        "stroke-width=\"0.6\"/>",
        l.order, l.first, l.first + l.count - 1, to_ms(l.started), to_ms(l.ended), x, y, wide,
        height - 4, colours[l.order % std::size(colours)]);
    if (wide > 30) {
      out += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}-{}</text>",
                         x + wide / 2, y + 15, l.first, l.first + l.count - 1);
    }
    out += "</g>\n";
  }
  const double y = 14 + rows * height + 22;
  out += fmt::format(
      "<text x=\"{}\" y=\"{}\">{:.3f} ms</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.3f} "
      "ms</text>\n</svg>\n",
      left, y, begin, left + width, y, end);
  return out;
}

std::string json_text(const std::string& policy, const staged_model_spec& m,
                      const sim::staged_result& r, bool events) {
  json_writer out;
  out.begin_object()
      .field("policy", policy)
      .field("completed", r.completed)
      .field("mean_ms", r.mean_ms())
      .field("p50_ms", r.percentile_ms(0.5))
      .field("p99_ms", r.percentile_ms(0.99))
      .field("throughput_rps", r.throughput_rps())
      .field("bad_rate", r.bad_rate(m.slo))
      .field("new", r.made)
      .field("stretch", r.stretched)
      .field("split", r.split)
      .field("hold", r.held);
  out.key("mean_batch").begin_array(json_writer::layout::line);
  for (const double b : r.mean_batch) out.value(b);
  out.end_array();
  if (events) {
    out.key("latency_ms").begin_array(json_writer::layout::line);
    for (const duration d : r.latency) out.value(to_ms(d));
    out.end_array();
  }
  out.end_object();
  return out.take();
}

std::string table_text(const std::string& policy, const staged_model_spec& m,
                       const sim::staged_result& r, bool events) {
  std::string text = fmt::format("{}, {}: {} completed, {} requests/s\n", m.name, policy,
                                 grouped(r.completed), decimal(r.throughput_rps(), 1));
  text += fmt::format("latency: mean {} ms, p50 {} ms, p99 {} ms; {} above {} ms\n",
                      decimal(r.mean_ms(), 3), decimal(r.percentile_ms(0.5), 3),
                      decimal(r.percentile_ms(0.99), 3), percent(r.bad_rate(m.slo)),
                      decimal(to_ms(m.slo), 3));
  text += fmt::format("rows {}, stretches {}, splits {}, holds {}\n", grouped(r.made),
                      grouped(r.stretched), grouped(r.split), grouped(r.held));
  table stages{{"stage", "mean batch"}};
  for (std::size_t s = 0; s < m.stages.size(); ++s) {
    stages.add({m.stages[s].name, decimal(r.mean_batch[s], 2)});
  }
  text += stages.text();
  if (events) {
    table requests{{"request", "latency ms"}};
    for (std::size_t i = 0; i < r.latency.size(); ++i) {
      requests.add({fmt::to_string(i + 1), decimal(to_ms(r.latency[i]), 6)});
    }
    text += requests.text();
  }
  return text;
}

}  // namespace

int pipeline_command(const pipeline_command_options& o) {
  const staged_policy policy = parse_staged_policy(o.policy);
  staged_settings settings{.seed = parse_seed(o.seed), .record_launches = o.trace || o.svg};
  settings.overhead =
      from_ms(parse_number("--overhead-ms", o.overhead_ms, {.low = 0, .high = 1e6}));
  if (!policy.has_rows && (o.trace || o.svg)) {
    // Its items belong to no row that a timeline could show.
    const bool trace = o.trace.has_value();
    fail(trace ? "--trace" : "--svg", quote_short(trace ? *o.trace : *o.svg),
         fmt::format("no {} with --policy {}", trace ? "--trace" : "--svg", policy.name));
  }
  if (o.trace) check_writable(*o.trace);
  if (o.svg) check_writable(*o.svg);
  staged_model_spec m = parse_staged_model(o.file, read_file(o.file));
  print_warnings("cohort", m.repairs);
  if (o.buffer_sets) {
    m.buffer_sets = static_cast<std::uint32_t>(
        parse_integer("--buffer-sets", *o.buffer_sets, {.low = 1, .high = 64}));
  }
  const std::vector<sim::staged_arrival> arrivals = read_arrivals(o, m, settings.seed);
  const auto made = naming(input_name(o.file),
                           [&] { return std::make_unique<const staged_runner>(std::move(m)); });
  const staged_runner& runner = *made;
  sim::staged_result r;
  {
    progress_bar bar{o.policy, "simulated s"};
    const double length = std::max(1e-9, to_seconds(arrivals.back().at));
    r = runner.run(policy, arrivals, settings, [&](time_point now) {
      bar.update(std::min(1.0, to_seconds(now) / length), to_seconds(now));
    });
  }
  if (o.trace) write_file(*o.trace, trace_text(runner.spec(), r));
  if (o.svg) write_file(*o.svg, timeline_svg(runner.spec(), r));
  print(o.json ? json_text(o.policy, runner.spec(), r, o.events)
               : table_text(o.policy, runner.spec(), r, o.events));
  return 0;
}

}  // namespace cohort::commands
