// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"
#include "few_requests.hpp"
#include "run_options.hpp"
#include "run_report.hpp"
#include "search_progress.hpp"

#include <cohort/sim/goodput.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

using answers = std::vector<found_policy<sim::goodput_result>>;

/// The highest rate with runs small enough to simulate.
double highest_rate(const sim::workload& w) {
  return std::min(rates.high, most_requests / to_seconds(w.warmup + w.measured));
}

/// Whether a policy relies on profiles and therefore leaves devices idle at its peak.
bool trusts_profiles(const policy& how, const sim::goodput_result& peak, const sim::workload& w) {
  const noise_options& n = w.reality.noise;
  const bool runs_longer = n.sigma > 0 || n.bias > 1;
  return runs_longer && !how.tuning && (!peak.at_peak || peak.at_peak->busy_fraction < 0.1);
}

/// Warns of a policy that trusts profiles; else, if single models are judged, of the peak with the
/// fewest requests of a model.
std::optional<std::string> warning_of(const answers& found, const sim::workload& w,
                                      const sim::search_options& o) {
  for (const auto& [how, peak] : found) {
    if (trusts_profiles(how, peak, w)) {
      return fmt::format(
          "{} ({}) at {} r/s: batches run longer than their profiles, and this policy does not "
          "learn how long: try adaptive",
          how.name, how.gather_name(), peak.goodput);
    }
  }
  if (o.judge == sim::judged::total) return std::nullopt;
  std::uint64_t least = enough_requests;
  std::optional<std::string> out;
  for (const auto& [how, peak] : found) {
    if (!peak.at_peak) continue;
    const sim::model_result* m = least_requested(peak.at_peak->per_model);
    if (m == nullptr || m->arrived >= least) continue;
    least = m->arrived;
    out = fmt::format("{} ({}) at {} r/s: {}", how.name, how.gather_name(), peak.goodput,
                      *few_requests(w, peak.at_peak->per_model));
  }
  return out;
}

std::string as_json(const answers& found, const checked_workload& input,
                    const sim::search_options& o, const std::string& judge) {
  const sim::workload& w = input.load;
  json_writer out;
  out.begin_object().key("goodput").begin_array();
  for (const auto& [how, peak] : found) {
    out.begin_object()
        .field("policy", how.name)
        .field("gather", how.gather_name())
        .field("goodput_rps", peak.goodput)
        .key("at_peak");
    if (peak.at_peak) {
      write_report(out, report{how, w, o.seed, *peak.at_peak}, false);
    } else {
      out.null();
    }
    out.end_object();
  }
  write_warnings(out.end_array().field("judge", judge), input.repairs, warning_of(found, w, o));
  return out.end_object().take();
}

std::string as_text(const answers& found, const sim::workload& w, const sim::search_options& o,
                    std::string_view note) {
  std::string out = fmt::format(
      "{}, {}: highest rate with at most {}\n"
      "(seeds {} to {}, to within {} %; the other columns are of seed {} at that rate)\n{}\n",
      counted(w.devices, "device"), counted(w.models.size(), "model"), limit_text(o), o.seed,
      o.seed + o.seeds - 1, decimal(100 * o.precision, 4), o.seed, note);
  table t{{"policy", "gather", "goodput r/s", "bad", "busy", "batch p50", "queueing p50 ms",
           "p50 ms", "p99 ms"}};
  for (const auto& [how, result] : found) {
    const auto& peak = result.at_peak;
    if (!peak) {
      t.add({how.name, std::string{how.gather_name()}, "0", "", "", "", "", "", ""});
      continue;
    }
    t.add({how.name, std::string{how.gather_name()}, decimal(result.goodput, 3),
           percent(peak->bad_rate), percent(peak->busy_fraction), fmt::to_string(peak->batch_p50),
           fixed(peak->queueing_p50_ms, 2), fixed(peak->latency_p50_ms, 2),
           fixed(peak->latency_p99_ms, 2)});
  }
  return out + t.text();
}

}  // namespace

int goodput_command(const goodput_options& o) {
  const sim::search_options search =
      parse_search(o.precision, o.bad_limit, o.judge, o.seeds, o.seed);
  checked_workload input = read_checked_workload(o.file, o.json);
  sim::workload& w = input.load;
  const std::vector<policy> policies =
      chosen_policies(parse_searched_policies, o.policy, o.how, o.file, w);
  apply_devices(o.devices, w);
  apply_subclusters(o.subclusters, o.file, w);
  apply_reality(o.reality, o.file, w);
  refuse_for_rivals(policies, w);
  refuse_trace(o.file, w, "goodput");
  apply_duration(o.duration_s, w);

  answers found;
  for (const policy& p : policies) {
    found.push_back(search_best_gather(
        p,
        [&](const policy& variant) {
          const search_runner run{variant, search, 4 + std::log2(1 / search.precision)};
          return sim::find_goodput(w, search, highest_rate(w), run);
        },
        [](const auto& a, const auto& b) { return a.goodput > b.goodput; }));
    if (found.back().found.beyond) {
      throw input_error{fmt::format(
          "{}: {} still meets every SLO at {} r/s: expected a workload whose peak can be simulated "
          "({} requests a run); a shorter duration_s or a max_batch helps",
          o.file, p.name, found.back().found.goodput, most_requests)};
    }
  }
  if (o.json) {
    print(as_json(found, input, search, o.judge));
  } else {
    print(as_text(found, w, search, gather_note(policies)));
    warn(warning_of(found, w, search));
  }
  const bool all = std::ranges::all_of(found, [](const auto& f) { return f.found.goodput > 0; });
  return all ? 0 : 1;
}

}  // namespace cohort::commands
