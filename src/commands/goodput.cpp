// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"
#include "run_options.hpp"
#include "run_report.hpp"
#include "search_progress.hpp"

#include <cohort/sim/goodput.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cohort::commands {
namespace {

/// The highest rate whose runs are of a size that can be simulated.
double highest_rate(const sim::workload& w) {
  return std::min(rates.high, most_requests / to_seconds(w.warmup + w.measured));
}

std::string as_json(const std::vector<policy>& policies, const sim::workload& w,
                    const sim::search_options& o, const std::vector<sim::goodput_result>& found) {
  json_writer out;
  out.begin_object().key("goodput").begin_array();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    out.begin_object()
        .field("policy", policies[i].name)
        .field("goodput_rps", found[i].goodput)
        .key("at_peak");
    if (found[i].at_peak) {
      write_report(out, report{policies[i], w, o.seed, *found[i].at_peak}, false);
    } else {
      out.null();
    }
    out.end_object();
  }
  return out.end_array().end_object().take();
}

std::string as_text(const std::vector<policy>& policies, const sim::workload& w,
                    const sim::search_options& o, const std::vector<sim::goodput_result>& found) {
  std::string out = fmt::format(
      "{}, {}: highest rate with at most {} % of each model's requests bad\n"
      "(seeds {} to {}, to within {} %; the other columns are of seed {} at that rate)\n\n",
      counted(w.devices, "device"), counted(w.models.size(), "model"),
      decimal(100 * o.bad_limit, 4), o.seed, o.seed + o.seeds - 1, decimal(100 * o.precision, 4),
      o.seed);
  table t{{"policy", "gather", "goodput r/s", "bad", "busy", "batch p50", "queueing p50 ms",
           "p50 ms", "p99 ms"}};
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const auto& peak = found[i].at_peak;
    if (!peak) {
      t.add(
          {policies[i].name, std::string{policies[i].gather_name()}, "0", "", "", "", "", "", ""});
      continue;
    }
    t.add({policies[i].name, std::string{policies[i].gather_name()}, decimal(found[i].goodput, 3),
           percent(peak->bad_rate), percent(peak->busy_fraction), fmt::to_string(peak->batch_p50),
           fixed(peak->queueing_p50_ms, 2), fixed(peak->latency_p50_ms, 2),
           fixed(peak->latency_p99_ms, 2)});
  }
  return out + t.text();
}

}  // namespace

int goodput_command(const goodput_options& o) {
  const sim::search_options search = parse_search(o.precision, o.bad_limit, o.seeds, o.seed);
  sim::workload w = read_workload(o.file);
  const std::vector<policy> policies = chosen_policies(o.policy, o.how, o.file, w);
  apply_devices(o.devices, w);
  apply_reality(o.reality, o.file, w);
  refuse_trace(o.file, w, "goodput");
  apply_duration(o.duration_s, w);

  std::vector<sim::goodput_result> found;
  for (const policy& p : policies) {
    const search_runner run{p, search, 4 + std::log2(1 / search.precision)};
    found.push_back(sim::find_goodput(w, search, highest_rate(w), run));
    if (found.back().beyond) {
      throw input_error{fmt::format(
          "{}: {} still meets every SLO at {} r/s: expected a workload whose peak can be simulated "
          "({} requests a run); a shorter duration_s or a max_batch helps",
          o.file, p.name, found.back().goodput, most_requests)};
    }
  }
  print(o.json ? as_json(policies, w, search, found) : as_text(policies, w, search, found));
  const bool all = std::ranges::all_of(found, [](const auto& f) { return f.goodput > 0; });
  return all ? 0 : 1;
}

}  // namespace cohort::commands
