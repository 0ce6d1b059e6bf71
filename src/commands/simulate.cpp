// SPDX-License-Identifier: Apache-2.0
#include <formats/chrome_trace.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"
#include "few_requests.hpp"
#include "progress.hpp"
#include "run_options.hpp"
#include "run_report.hpp"

#include <filesystem>
#include <utility>

namespace cohort::commands {
namespace {

double parse_rate(const simulate_options& o, const sim::workload& w) {
  if (w.arrivals == sim::arrival_process::trace) {
    if (o.rate) fail("--rate", *o.rate, "no --rate: the workload's trace says when requests come");
    return 0;
  }
  return chosen_rate(o.rate, w);
}

}  // namespace

int simulate_command(const simulate_options& o) {
  sim::run_options options{.seed = parse_seed(o.seed),
                           .record_dispatches = o.dispatches || o.trace.has_value()};
  if (o.refuse_early) {
    if (*o.refuse_early != "on" && *o.refuse_early != "off") {
      fail("--refuse-early", quote_short(*o.refuse_early), "on or off");
    }
    options.refusals.is_on = *o.refuse_early == "on";
  }
  if (o.trace) {
    std::error_code ignored;
    if (*o.trace == "-" || std::filesystem::equivalent(*o.trace, o.file, ignored)) {
      fail("--trace", quote_short(*o.trace), "a file other than the input and the output");
    }
    check_writable(*o.trace);
  }
  checked_workload input = read_checked_workload(o.file, o.json);
  sim::workload& w = input.load;
  const std::vector<policy> policies =
      chosen_policies(parse_simulated_policies, o.policy, o.how, o.file, w);
  if (policies.size() != 1) {
    fail("--policy", quote_short(o.policy.value_or(w.policy.name)), "one policy");
  }
  apply_devices(o.devices, w);
  apply_subclusters(o.subclusters, o.file, w);
  apply_reality(o.reality, o.file, w);
  refuse_for_rivals(policies, w);
  apply_duration(o.duration_s, w);
  options.rate = parse_rate(o, w);

  sim::run_result run;
  {
    progress_bar bar{policies[0].name, "simulated s"};
    const double length = to_seconds(w.warmup + w.measured);
    run = run_policy(policies[0], w, options, [&](time_point now) {
      bar.update(to_seconds(now) / length, to_seconds(now));
    });
  }
  if (o.trace) write_file(*o.trace, chrome_trace(w, run));
  const report r{policies[0], w, options.seed, run, input.repairs};
  if (o.json) {
    json_writer out;
    write_report(out, r, o.dispatches);
    print(out.take());
  } else {
    print(report_text(r, o.dispatches));
    warn(few_requests(w, run.per_model));
  }
  return 0;
}

}  // namespace cohort::commands
