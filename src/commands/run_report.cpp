// SPDX-License-Identifier: Apache-2.0
#include "run_report.hpp"

#include <drawings/table.hpp>
#include "few_requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

using layout = json_writer::layout;

/// Infinite, which becomes null in JSON, for events that a hung device never reaches.
double ms_or_never(time_point t) { return t == never ? sim::infinitely_late : to_ms(t); }

void write_dispatches(json_writer& out, const report& r) {
  out.key("dispatches").begin_array();
  for (const sim::dispatch_record& d : r.run.dispatches) {
    out.begin_object(layout::line)
        .field("time_ms", to_ms(d.at))
        .field("device", d.device)
        .field("model", r.load.models[d.model].name)
        .field("size", d.size)
        .field("first", d.first)
        .field("exec_ms", ms_or_never(d.exec_at))
        .field("latest_ms", to_ms(d.latest))
        .field("finish_ms", ms_or_never(d.finish))
        .key("requests")
        .begin_array();
    for (std::uint64_t sequence : d.requests) out.value(sequence);
    out.end_array().end_object();
  }
  out.end_array();
}

std::string instant(time_point t) { return t == never ? "never" : fixed(to_ms(t), 3); }

std::string dispatch_table(const report& r) {
  table t{{"model", "device", "time ms", "start ms", "latest ms", "finish ms", "size", "first"}};
  for (const sim::dispatch_record& d : r.run.dispatches) {
    t.add({r.load.models[d.model].name, fmt::to_string(d.device), fixed(to_ms(d.at), 3),
           instant(d.exec_at), instant(d.latest), instant(d.finish), fmt::to_string(d.size),
           fmt::to_string(d.first)});
  }
  return t.text();
}

std::string ms(double x) { return std::isfinite(x) ? fixed(x, 2) + " ms" : "never (dropped)"; }

/// For `n` devices.
std::string advice(const sim::run_result& run, std::size_t n) {
  const std::int64_t more = run.advice.devices;
  if (more == 0) return "as many as this load needs";
  return fmt::format("{} would {}", static_cast<std::int64_t>(n) + more,
                     more > 0 ? "be needed" : "be enough");
}

/// Writes the random values drawn from the run's reality.
void write_drawn(json_writer& out, const report& r, const sim::reality_record& drawn) {
  out.key("reality").begin_object();
  out.key("models").begin_array();
  for (std::size_t i = 0; i < drawn.models.size(); ++i) {
    const sim::reality_record::model& m = drawn.models[i];
    out.begin_object(layout::line)
        .field("name", r.load.models[i].name)
        .field("bias", m.bias)
        .field("batches", m.batches)
        .field("mean_factor", m.mean_factor)
        .field("worst_factor", m.worst_factor)
        .end_object();
  }
  out.end_array().key("devices").begin_array();
  for (const sim::reality_record::device& d : drawn.devices) {
    out.begin_object(layout::line)
        .field("batches", d.batches)
        .field("failed", d.failed)
        .field("hung", d.hung)
        .end_object();
  }
  out.end_array()
      .key("timers")
      .begin_object(layout::line)
      .field("wakes", drawn.wakes)
      .field("late_mean_ms", drawn.late_mean_ms())
      .field("late_worst_ms", to_ms(drawn.late_worst))
      .end_object()
      .end_object();
}

/// Writes the changes of settings by a self-tuning policy, with time and reason.
void write_settings(json_writer& out, const std::vector<deferred::settings_change>& changes) {
  out.key("settings").begin_array();
  for (const deferred::settings_change& c : changes) {
    out.begin_object(layout::line)
        .field("time_ms", to_ms(c.at))
        .field("window", deferred::name_of(c.now.window))
        .field("quantile", c.now.quantile)
        .field(
            "reason",
            fmt::format("on average of {} round{} score {:+.2f} points, cost {} of before; last in "
                        "{} requests bad {} instead of {}, mean latency {} instead of {} ms",
                        c.why.rounds, c.why.rounds == 1 ? "" : "s", 100 * c.why.excess,
                        percent(c.why.ratio), c.after.requests, percent(c.after.bad),
                        percent(c.before.bad), decimal(1e3 * c.after.latency, 2),
                        decimal(1e3 * c.before.latency, 2)))
        .end_object();
  }
  out.end_array();
}

std::string drawn_line(const sim::reality_record& drawn) {
  double sum = 0;
  double worst = 0;
  std::uint64_t batches = 0;
  for (const sim::reality_record::model& m : drawn.models) {
    sum += m.mean_factor * static_cast<double>(m.batches);
    batches += m.batches;
    if (m.batches > 0) worst = std::max(worst, m.worst_factor);
  }
  std::uint64_t failed = 0;
  std::uint64_t hung = 0;
  for (const sim::reality_record::device& d : drawn.devices) {
    failed += d.failed;
    hung += d.hung;
  }
  return fmt::format(
      "batches take {} times their profile, at most {}; {} failed, {} never ended; timers {} ms "
      "late, at most {}",
      fixed(batches > 0 ? sum / static_cast<double>(batches) : 1, 3), fixed(worst, 2),
      grouped(failed), grouped(hung), fixed(drawn.late_mean_ms(), 3),
      fixed(to_ms(drawn.late_worst), 3));
}

}  // namespace

void write_report(json_writer& out, const report& r, bool with_dispatches) {
  const sim::run_result& run = r.run;
  out.begin_object()
      .field("policy", r.how.name)
      .field("gather", r.how.gather_name())
      .field("seed", r.seed)
      .field("devices", r.load.devices)
      .field("warmup_s", to_seconds(r.load.warmup))
      .field("duration_s", to_seconds(r.load.measured))
      .field("offered_rps", run.offered_rps)
      .field("arrived", run.arrived)
      .field("completed", run.completed)
      .field("late", run.late)
      .field("dropped", run.dropped)
      .field("refused", run.refused)
      .field("bad_rate", run.bad_rate)
      .field("throughput_rps", run.throughput_rps)
      .field("busy_fraction", run.busy_fraction)
      .field("devices_used", run.devices_used);
  out.key("batch_size")
      .begin_object(layout::line)
      .field("mean", run.batch_mean)
      .field("p50", run.batch_p50)
      .field("p90", run.batch_p90)
      .end_object();
  out.key("queueing_ms")
      .begin_object(layout::line)
      .field("p50", run.queueing_p50_ms)
      .field("p99", run.queueing_p99_ms)
      .field("max", run.queueing_max_ms)
      .end_object();
  out.key("latency_ms")
      .begin_object(layout::line)
      .field("p50", run.latency_p50_ms)
      .field("p90", run.latency_p90_ms)
      .field("p99", run.latency_p99_ms)
      .end_object();
  out.key("served_ms")
      .begin_object(layout::line)
      .field("p50", run.served_p50_ms)
      .field("p90", run.served_p90_ms)
      .field("p99", run.served_p99_ms)
      .end_object();
  out.key("autoscale")
      .begin_object(layout::line)
      .field("bad_rate", run.advice.bad_rate)
      .field("idle_fraction", run.advice.idle_fraction)
      .field("advice_devices", run.advice.devices)
      .end_object();
  out.key("per_model").begin_array();
  for (const sim::model_result& m : run.per_model) {
    out.begin_object(layout::line)
        .field("name", m.name)
        .field("offered_rps", m.offered_rps)
        .field("bad_rate", m.bad_rate)
        .field("p99_ms", m.p99_ms)
        .field("batch_p50", m.batch_p50)
        .field("arrived", m.arrived)
        .field("completed", m.completed)
        .field("late", m.late)
        .field("dropped", m.dropped)
        .field("refused", m.refused)
        .end_object();
  }
  out.end_array();
  if (run.drawn) write_drawn(out, r, *run.drawn);
  if (!run.settings.empty()) write_settings(out, run.settings);
  write_warnings(out, r.repairs, few_requests(r.load, run.per_model));
  if (with_dispatches) write_dispatches(out, r);
  out.end_object();
}

std::string report_text(const report& r, bool with_dispatches) {
  const sim::run_result& run = r.run;
  std::string out = fmt::format("{} ({}) on {}, seed {}\nmeasured {} s after {} s of warm-up\n\n",
                                r.how.name, r.how.gather_name(), counted(r.load.devices, "device"),
                                r.seed, to_seconds(r.load.measured), to_seconds(r.load.warmup));
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<12}{}\n", name, text);
  };
  line("offered",
       fmt::format("{} requests, {} r/s", grouped(run.arrived), decimal(run.offered_rps, 1)));
  line("in time",
       fmt::format("{} requests, {} r/s", grouped(run.completed), decimal(run.throughput_rps, 1)));
  line("bad", fmt::format("{}: {} late, {} dropped, {} refused", percent(run.bad_rate),
                          grouped(run.late), grouped(run.dropped), grouped(run.refused)));
  line("devices", fmt::format("{} busy; {} of {} had a batch; {}", percent(run.busy_fraction),
                              run.devices_used, r.load.devices, advice(run, r.load.devices)));
  line("batch size", fmt::format("mean {}, p50 {}, p90 {}", fixed(run.batch_mean, 2), run.batch_p50,
                                 run.batch_p90));
  line("queueing", fmt::format("p50 {} ms, p99 {} ms, max {} ms", fixed(run.queueing_p50_ms, 2),
                               fixed(run.queueing_p99_ms, 2), fixed(run.queueing_max_ms, 2)));
  line("latency", fmt::format("p50 {}, p90 {}, p99 {}", ms(run.latency_p50_ms),
                              ms(run.latency_p90_ms), ms(run.latency_p99_ms)));
  if (run.drawn) line("reality", drawn_line(*run.drawn));
  out += '\n';
  table models{{"model", "slo ms", "offered r/s", "arrived", "late", "dropped", "refused", "bad",
                "p99 ms", "batch p50"}};
  for (std::size_t i = 0; i < run.per_model.size(); ++i) {
    const sim::model_result& m = run.per_model[i];
    models.add({m.name, decimal(to_ms(r.load.models[i].slo), 3), fixed(m.offered_rps, 1),
                grouped(m.arrived), grouped(m.late), grouped(m.dropped), grouped(m.refused),
                percent(m.bad_rate), fixed(m.p99_ms, 2), fmt::to_string(m.batch_p50)});
  }
  out += models.text();
  if (with_dispatches) out += '\n' + dispatch_table(r);
  return out;
}

}  // namespace cohort::commands
