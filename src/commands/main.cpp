// SPDX-License-Identifier: Apache-2.0
// The command line of `cohort`: options and help. What each subcommand does is in its own file.
#include <models/registry.hpp>
#include <registry/admission.hpp>
#include <registry/decode_tables.hpp>
#include <registry/policy.hpp>
#include <registry/profile_executors.hpp>
#include <registry/staged_policy.hpp>
#include "commands.hpp"

#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>
#include <cohort/runtime/blas.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

constexpr const char* rate_help =
    "Requests a second over all models [the workload's]; not with a trace";
constexpr const char* workload_file = "WORKLOAD.json, or - for standard input";
constexpr const char* reality_file =
    "How machines differ from their profiles: JSON, as the field `reality` of a workload, which it "
    "replaces";

std::string packers() { return "How models are placed:\n" + packer_names().help(); }
std::string slo_rules() { return "What a model waits for [own]:\n" + slo_rule_names().help(); }
std::string pads() { return "With interference [worst-neighbour]:\n" + pad_names().help(); }
std::string policies() {
  return "When a batch is sent [as the workload says]:\n" + simulated_policy_names().help();
}

/// A subcommand with an example below its help.
CLI::App* add(CLI::App& app, const char* name, const char* what, const std::string& example) {
  CLI::App* sub = app.add_subcommand(name, what);
  sub->footer("Example:\n  " + example + "\n");
  return sub;
}

template <class T>
CLI::Option* option(CLI::App* sub, const char* name, T& into, const std::string& what,
                    const char* type) {
  return sub->add_option(name, into, what)->type_name(type);
}

void flag(CLI::App* sub, const char* name, bool& into, const char* what) {
  sub->add_flag(name, into, what)->disable_flag_override();
}

void add_workload(CLI::App& app, workload_options& o) {
  CLI::App* sub = add(app, "workload", "Make a workload from a zoo of measured models",
                      "cohort workload --zoo a100 --devices 64 > a100.json");
  option(sub, "--zoo", o.zoo, "Profiles measured on which GPU: a100 (37 models), 1080ti (35)",
         "ZOO")
      ->required();
  option(sub, "--devices", o.devices, "Number of devices", "N")->required();
  option(sub, "--models", o.models, "Only these models, in this order", "NAME,...");
  option(sub, "--mix", o.mix,
         "all; strong: those that gain much from batching (beta/alpha > 2); weak: the rest [all]",
         "MIX");
  option(sub, "--copies", o.copies, "How often each model occurs, as NAME-1 to NAME-K [1]", "K");
  option(sub, "--slo-ms", o.slo_ms, "One SLO for all models [the paper's]", "X");
  option(sub, "--popularity", o.popularity, "Parts of the rate: equal, or zipf by position [equal]",
         "HOW");
  option(sub, "--arrivals", o.arrivals, "poisson, gamma (bursty) or uniform [poisson]", "PROCESS");
  option(sub, "--shape", o.shape, "Of gamma gaps, 0.001 to 1; smaller is burstier [1]", "G");
  flag(sub, "--json", o.json, "Has no effect: a workload is always JSON");
}

void add_tuning_options(CLI::App* sub, policy_options& o) {
  option(sub, "--tune", o.tune,
         "Whether adaptive tries other settings on what arrived of late, and adopts the best [on]",
         "on|off");
  option(sub, "--objective", o.objective,
         "Of adaptive, where settings lose as few requests: least latency, or fewest devices "
         "[latency]",
         "latency|devices");
  option(sub, "--fairness", o.fairness,
         "Of adaptive, what the worst model's share of bad requests counts for beside that of all "
         "[0.2]",
         "X");
  option(sub, "--window", o.window,
         "Of adaptive, what it starts with, from early to late: eager, brief, patient, reserved, "
         "frontrun or deferred [reserved]",
         "W");
  option(sub, "--quantile", o.quantile,
         "Of adaptive, the quantile of learned latencies that it starts with [0.9]", "Q");
}

void add_simulate(CLI::App& app, simulate_options& o) {
  CLI::App* sub = add(app, "simulate", "Run one policy in virtual time",
                      "cohort simulate a100.json --policy deferred --rate 15000");
  option(sub, "WORKLOAD", o.file, workload_file, "FILE")->required();
  option(sub, "--policy", o.policy, policies(), "P");
  option(sub, "--rate", o.rate, rate_help, "RPS");
  option(sub, "--devices", o.devices, "Instead of the workload's", "N");
  option(sub, "--subclusters", o.subclusters,
         "An answer of cohort subclusters: its sub-clusters are pools of as many devices each",
         "FILE");
  option(sub, "--gather", o.how.gather,
         fmt::format("Who is in a batch [{}]:\n{}", default_gathers(), gather_names().help()),
         "RULE");
  option(sub, "--duration-s", o.duration_s, "Length of the measured part [the workload's]", "S");
  option(sub, "--reality", o.reality, reality_file, "FILE");
  add_tuning_options(sub, o.how);
  option(sub, "--refuse-early", o.refuse_early,
         "Whether an overloaded model refuses what would be late at its arrival [on]", "on|off");
  option(sub, "--seed", o.seed, "Fixes everything random [1]", "N");
  flag(sub, "--dispatches", o.dispatches, "List every batch");
  option(sub, "--trace", o.trace, "Write a Chrome trace, one row a device, to open in Perfetto",
         "FILE");
  flag(sub, "--json", o.json, "Print JSON");
}

template <class Options>
void add_search_options(CLI::App* sub, Options& o) {
  option(sub, "--gather", o.how.gather,
         fmt::format("Who is in a batch [of several policies best, of one {}]:\n{}",
                     default_gathers(), searched_gather_names().help()),
         "RULE");
  option(sub, "--bad-limit", o.bad_limit,
         "Most of a model's requests that may be dropped or late [0.01]", "X");
  option(sub, "--judge", o.judge,
         "Whose requests: of each model, so that the worst decides, or the total [model]",
         "model|total");
  option(sub, "--seeds", o.seeds, "Runs at each point, averaged [3]", "K");
  option(sub, "--seed", o.seed, "Of the first run; the others take those that follow [1]", "N");
  option(sub, "--duration-s", o.duration_s, "Length of the measured part [the workload's]", "S");
  option(sub, "--reality", o.reality, reality_file, "FILE");
  add_tuning_options(sub, o.how);
  flag(sub, "--json", o.json, "Print JSON");
}

void add_goodput(CLI::App& app, goodput_options& o) {
  CLI::App* sub = add(app, "goodput", "Find the highest rate that still meets every SLO",
                      "cohort goodput a100.json --policy deferred,adaptive,eager");
  option(sub, "WORKLOAD", o.file, workload_file, "FILE")->required();
  option(sub, "--policy", o.policy, policies(), "P[,Q...]");
  option(sub, "--devices", o.devices, "Instead of the workload's", "N");
  option(sub, "--subclusters", o.subclusters,
         "An answer of cohort subclusters: its sub-clusters are pools of as many devices each",
         "FILE");
  option(sub, "--precision", o.precision, "Width of the last bracket, relative to the rate [0.01]",
         "X");
  add_search_options(sub, o);
}

void add_min_devices(CLI::App& app, min_devices_options& o) {
  CLI::App* sub = add(app, "min-devices", "Find the fewest devices for a rate",
                      "cohort min-devices a100.json --policy deferred,eager --rate 10000");
  option(sub, "WORKLOAD", o.file, workload_file, "FILE")->required();
  option(sub, "--policy", o.policy, policies(), "P[,Q...]");
  option(sub, "--rate", o.rate, rate_help, "RPS");
  option(sub, "--limit", o.limit, "Most devices to try [4096]", "N");
  add_search_options(sub, o);
}

void add_autoscale(CLI::App& app, autoscale_options& o) {
  CLI::App* sub =
      add(app, "autoscale", "Run a load that changes, on devices that come and go with it",
          "cohort autoscale a100.json --policy adaptive --rate 10000 --load day.csv");
  option(sub, "WORKLOAD", o.file, workload_file, "FILE")->required();
  option(sub, "--policy", o.policy,
         "When a batch is sent [as the workload says]:\n" + policy_names().help(), "P");
  option(sub, "--rate", o.rate, rate_help, "RPS");
  option(sub, "--load", o.load,
         "FILE.csv (time_s,part; linear between rows): the part of the rate that comes "
         "[reality.load of the workload]",
         "FILE");
  option(sub, "--devices", o.devices, "At the start [the workload's]", "N");
  option(sub, "--delay-s", o.delay_s, "From advice to a device that serves [60]", "S");
  option(sub, "--window-s", o.window_s, "Each window of measurements gives advice [10]", "S");
  option(sub, "--calm-windows", o.calm_windows,
         "So many in a row must spare devices before they are released [3]", "N");
  option(sub, "--limit", o.limit, "Most devices [4096]", "N");
  option(sub, "--least", o.least, "Whether to search for the fewest devices, to compare with [on]",
         "on|off");
  option(sub, "--gather", o.how.gather,
         fmt::format("Who is in a batch [{}]:\n{}", default_gathers(), gather_names().help()),
         "RULE");
  option(sub, "--duration-s", o.duration_s, "Length of the measured part [1800]", "S");
  option(sub, "--reality", o.reality, reality_file, "FILE");
  add_tuning_options(sub, o.how);
  option(sub, "--seed", o.seed, "Fixes everything random [1]", "N");
  option(sub, "--svg", o.svg, "Draw the devices over time", "FILE");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_pipeline(CLI::App& app, pipeline_command_options& o) {
  CLI::App* sub = add(app, "pipeline", "Run batches that requests enter and leave between stages",
                      "cohort pipeline unet.json --policy dvabatch --rate 1000");
  option(sub, "MODEL", o.file, "MODEL.json, or - for standard input", "FILE")->required();
  option(sub, "--policy", o.policy, "How requests share batches:\n" + staged_policy_names().help(),
         "P")
      ->required();
  option(sub, "--rate", o.rate, "Requests a second, Poisson", "RPS");
  option(sub, "--lengths", o.lengths, "CSV of request sizes, used in order", "FILE");
  option(sub, "--arrivals", o.arrivals, "CSV of arrivals: time_ms[,size]; instead of --rate",
         "FILE");
  option(sub, "--buffer-sets", o.buffer_sets, "Buffers at each boundary [the model's, or 2]", "K");
  option(sub, "--requests", o.requests, "Requests to draw at --rate [30000]", "N");
  option(sub, "--overhead-ms", o.overhead_ms, "Added to every item of a stage [0]", "X");
  option(sub, "--seed", o.seed, "Fixes everything random [1]", "N");
  option(sub, "--trace", o.trace, "Write a Chrome trace, one row a stage, to open in Perfetto",
         "FILE");
  option(sub, "--svg", o.svg, "Draw the first 200 items on a timeline", "FILE");
  flag(sub, "--events", o.events, "List the latency of every request");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_profile(CLI::App& app, profile_options& o) {
  CLI::App* sub = add(app, "profile", "Measure how long models run on this machine",
                      "cohort profile --model all --executor host --out profiles");
  option(sub, "--model", o.model,
         fmt::format("Files of ONNX, all, {}", fmt::join(models::model_names(), ", ")),
         "NAME|[NAME=]FILE.onnx,...")
      ->required();
  option(sub, "--out", o.out, "Where to write the CSV and JSON files", "DIR")->required();
  option(sub, "--executor", o.executor, "Where [host]:\n" + profile_executors.list().help(), "E");
  option(sub, "--batches", o.batches,
         "Batch sizes, or auto: few, and more where the line between two is off by more than noise "
         "[1,2,4,8,16,32]",
         "B,...|auto");
  option(sub, "--largest-batch", o.largest_batch, "Of --batches auto [32]", "N");
  option(sub, "--partitions", o.partitions, "Parts of the device, in percent [100]", "P,...");
  option(sub, "--max-length", o.max_length,
         "Of files of ONNX with a dynamic length: measured at that [max_length of its "
         "config.pbtxt, or 512]",
         "N");
  option(sub, "--repeats", o.repeats, "Runs of each, of which the median counts [50]", "N");
  option(sub, "--time-limit-s", o.time_limit_s,
         "Time for one model, after at least three runs of each [10]", "S");
  option(sub, "--slo-ms", o.slo_ms,
         "SLO to write [slo_ms of its config.pbtxt, or twice the latency of batch 4, at least 20]",
         "X");
  option(sub, "--stages", o.stages,
         "Cut each model into so many stages, or auto: as many as have the least mean latency in "
         "trial runs in virtual time [the model's own]",
         "N|auto");
  option(sub, "--stage-load", o.stage_load, "Of the trial runs, as a part of the peak [0.6]", "F");
  option(sub, "--hand-over-ms", o.hand_over_ms, "Of the trial runs, for each item [measured]", "X");
  option(sub, "--seed", o.seed, "Of weights, inputs and trial runs [1]", "N");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_slice(CLI::App& app, slice_options& o) {
  CLI::App* sub = add(app, "slice", "Cut a model of ONNX into stages that a pipeline runs",
                      "cohort slice bert/1/model.onnx --out models --max-length 128");
  option(sub, "MODEL", o.file, "MODEL.onnx", "FILE")->required();
  option(sub, "--out", o.out,
         "Where to write NAME/1/model.onnx, NAME/1/stages/1.onnx, 2.onnx, ..., NAME.json and "
         "NAME.stages.json",
         "DIR")
      ->required();
  option(sub, "--name", o.name, "Of the model [that of its file, or NAME of NAME/1/model.onnx]",
         "NAME");
  option(sub, "--stages", o.stages,
         "So many stages, or auto: as many as have the least mean latency in trial runs in virtual "
         "time [auto]",
         "N|auto");
  option(sub, "--largest-batch", o.largest_batch, "Batches of 1, 2, 4, ... and N are measured [16]",
         "N");
  option(sub, "--max-length", o.max_length,
         "Of models with a dynamic length: measured at an eighth, a quarter, half and all of it "
         "[max_length of its config.pbtxt, or 512]",
         "N");
  option(sub, "--most-tensors", o.most_tensors, "Tensors that may cross a cut [3]", "N");
  option(sub, "--most-pieces", o.most_pieces,
         "Pieces to measure at first; between more places, every so manyth is taken [64]", "N");
  option(sub, "--repeats", o.repeats, "Runs of each, of which the median counts [15]", "N");
  option(sub, "--stage-load", o.stage_load, "Of the trial runs, as a part of the peak [0.6]", "F");
  option(sub, "--hand-over-ms", o.hand_over_ms, "Of the trial runs, for each item [measured]", "X");
  option(sub, "--slo-ms", o.slo_ms, "SLO to write [twice the latency of batch 4, at least 20]",
         "X");
  option(sub, "--seed", o.seed, "Of inputs and trial runs [1]", "N");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_interference(CLI::App& app, interference_options& o) {
  CLI::App* sub =
      add(app, "interference", "Measure how much models slow each other down side by side",
          "cohort interference --profiles profiles --pairs all --out profiles");
  option(sub, "--profiles", o.profiles,
         "Folder that `cohort profile --partitions 50,100` wrote, of two models or more", "DIR")
      ->required();
  option(sub, "--model", o.model, "The files of those models of the profile that are ONNX's [none]",
         "[NAME=]FILE.onnx,...");
  option(sub, "--max-length", o.max_length,
         "Of those with a dynamic length [max_length of its config.pbtxt, or 512]", "N");
  option(sub, "--pairs", o.pairs, "Which pairs of models:\n" + pair_choice_names().help(), "PAIRS")
      ->required();
  option(sub, "--out", o.out,
         "Where to write; may be that of --profiles. Pairs that are there already are not measured "
         "again",
         "DIR")
      ->required();
  option(sub, "--executor", o.executor, "Where [host]:\n" + profile_executors.list().help(), "E");
  option(sub, "--batches", o.batches, "Batch sizes [1 and 8, or the largest measured]", "B,...");
  option(sub, "--sizes", o.sizes,
         "Parts of the device, in percent, of which each two that fit it are tried [those measured "
         "of all models]",
         "P,...");
  option(sub, "--seconds", o.seconds,
         "For two batches on two partitions: a part of it for each of their blocks, but one run at "
         "least [1]",
         "S");
  option(sub, "--turns", o.turns, "Blocks side by side, each between two alone [5]", "N");
  option(sub, "--clock", o.clock, "What counts [busy]:\n" + clock_names().help(), "C");
  option(sub, "--hold-back", o.hold_back,
         "Part of the pairs that the fit does not see, and is judged by; with fewer than 10 pairs "
         "each in turn [0.3]",
         "FRACTION");
  option(sub, "--seed", o.seed, "Of weights, inputs, and the order and choice of pairs [1]", "N");
  flag(sub, "--json", o.json, "Print JSON");
}

/// Prints one line, whatever the text holds. @returns The exit status.
int complain(std::string_view what) {
  std::string line{what};
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "cohort: {}\n", line);
  return 2;
}

/// The subcommands' names, as in "expected workload, simulate or goodput".
std::string subcommand_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + sub->get_name();
  }
  return names;
}

/// What CLI11 found wrong, said our way.
std::string reason(const CLI::App& app, const CLI::ParseError& e) {
  std::string what = e.what();
  const std::string first = what.substr(0, what.find(':'));
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr) {
    const std::vector<std::string> rest = app.remaining(true);
    const std::string extra = rest.empty() ? what : quote_short(rest.front());
    if (chosen.empty() && !rest.empty() && !rest.front().starts_with('-')) {
      return fmt::format("{} is not a subcommand: expected {}", extra, subcommand_names(app));
    }
    return fmt::format("{} is not allowed: expected what cohort {}--help lists", extra,
                       chosen.empty() ? "" : chosen.front()->get_name() + " ");
  }
  if (dynamic_cast<const CLI::RequiredError*>(&e) != nullptr) {
    const std::string name = what.substr(0, what.find(' '));
    return fmt::format("{}: missing: expected {}", name,
                       name.starts_with('-') ? "a value" : "a file, or - for standard input");
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&e) != nullptr) {
    if (what.ends_with("override")) {
      return "--" + what.substr(0, what.find(' ')) + ": a value is not allowed: expected none";
    }
    return what.ends_with("missing") ? first + ": missing: expected a value"
                                     : first + ": repeated: expected one value";
  }
  return what;
}

void add_load(CLI::App& app, load_command_options& o) {
  CLI::App* sub = add(app, "load", "Load a server in an open loop and report its goodput",
                      "cohort load --url http://127.0.0.1:8000 --rate 200 --duration-s 10");
  option(sub, "--url", o.url, "The server [http://127.0.0.1:8000]", "URL");
  option(sub, "--management-url", o.management_url,
         "Where its metrics are, if it has a port for them", "URL");
  option(sub, "--rate", o.rate, "Requests a second over all models", "RPS")->required();
  option(sub, "--duration-s", o.duration_s, "Length of sending [10]", "S");
  option(sub, "--arrivals", o.arrivals, "poisson, gamma (bursty) or uniform [poisson]", "PROCESS");
  option(sub, "--shape", o.shape, "Of gamma gaps, 0.001 to 1; smaller is burstier [1]", "G");
  option(sub, "--models", o.models, "Only these models [all that are served]", "NAME,...");
  option(sub, "--timeout-ms", o.timeout_ms, "Deadline of each request [the model's SLO]", "MS");
  option(sub, "--connections", o.connections, "Most connections at one time [256]", "N");
  option(sub, "--give-up-s", o.give_up_s,
         "A request without an answer so long after its deadline is lost [10]", "S");
  option(sub, "--verify", o.verify, "Answers to compare with the reference [0]", "N");
  option(sub, "--weights-seed", o.weights_seed, "The server's --seed, to verify [1]", "N");
  option(sub, "--seed", o.seed, "Fixes arrivals and inputs [1]", "N");
  flag(sub, "--binary", o.binary, "Send and ask for tensors as binary data, not as JSON");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_decode(CLI::App& app, decode_command_options& o) {
  CLI::App* sub = add(app, "decode", "Count what a way of batching LLM requests costs",
                      "cohort decode requests.csv --batch 8 --method baton");
  option(sub, "REQUESTS", o.file,
         "CSV: id,prompt_tokens,output_tokens[,arrival_ms,priority], or - for standard input",
         "FILE")
      ->required();
  option(sub, "--batch", o.batch, "Slots of the batch", "B")->required();
  option(sub, "--method", o.method,
         "How requests share the batch:\n" + decode_methods.list().help(), "M")
      ->required();
  option(sub, "--pick", o.pick,
         "Who enters next; groups are always fifo [fifo]:\n" + decode_picks.list().help(), "P");
  option(sub, "--kernel", o.kernel,
         "What attention reads [dense; orca: ragged]:\n" + decode_kernels.list().help(), "K");
  option(sub, "--cost", o.cost,
         "JSON: {iteration_ms, per_token_ms, per_column_ms} [1 ms an iteration]", "FILE");
  option(sub, "--trace", o.trace, "Write a Chrome trace, one row a slot, to open in Perfetto",
         "FILE");
  option(sub, "--ttft-slo-ms", o.ttft_slo_ms, "Longest time to the first token", "X");
  option(sub, "--inter-token-slo-ms", o.inter_token_slo_ms,
         "Longest time between two tokens of a request", "Y");
  option(sub, "--admission", o.admission,
         "Serve the requests under these SLOs, too; of orca within, of baton beside the "
         "iterations:\n" +
             admission_names().help(),
         "P[,Q...]");
  option(sub, "--prefill-ms", o.prefill_ms,
         "With --admission: of a prefill run or piece, on top of its tokens [0]", "MS");
  option(sub, "--seed", o.seed, "Has no effect: nothing is random [1]", "N");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_page(CLI::App& app, page_options& o) {
  CLI::App* sub = add(app, "report", "Make an HTML page of profiles and load runs",
                      "cohort report --profile profiles --run eager=eager.json --out report.html");
  option(sub, "--profile", o.profile, "Folder that `cohort profile` wrote", "DIR")->required();
  option(sub, "--run", o.runs, "What `cohort load --json` printed; repeatable", "NAME=FILE")
      ->required();
  option(sub, "--figure", o.figures,
         "A drawing of `cohort pipeline`, `pack` or `replan`, put into the page; repeatable",
         "CAPTION=FILE.svg");
  option(sub, "--sweep", o.sweep.runs,
         "A load run of those at rising rates, drawn over the rate; repeatable", "NAME=FILE");
  option(sub, "--predicted", o.sweep.predicted,
         "What `cohort simulate --json` says of such a run; repeatable", "NAME=FILE");
  option(sub, "--setting", o.sweep.setting, "What --sweep has loaded, in words", "TEXT");
  option(sub, "--course", o.course.runs, "A load run, drawn second by second; repeatable",
         "NAME=FILE");
  option(sub, "--event", o.course.event, "What happened so many seconds into --course",
         "SECONDS=TEXT");
  option(sub, "--learned", o.course.learned,
         "How slow a server found its devices then: columns time_s,device,factor", "FILE.csv");
  option(sub, "--out", o.out, "The page: one file, no links to others", "FILE")->required();
}

void add_rules(CLI::App* sub, packer_options& o) {
  const auto rule = [&](const char* name, text_option& into, const char* what,
                        const name_list& names, const char* type) {
    option(sub, name, into,
           fmt::format("Of {}, {}:\n{}", packers_with(&packer_traits::takes_rules), what,
                       names.help()),
           type);
  };
  rule("--order", o.order, "which model is next", order_names(), "O");
  rule("--knee", o.knee, "which size is the best for a model", knee_names(), "K");
  rule("--fit", o.fit, "which free gpu-let [best]", fit_names(), "F");
}

void add_pack(CLI::App& app, pack_options& o) {
  CLI::App* sub = add(app, "pack", "Place models on partitions of GPUs so that every SLO is met",
                      "cohort pack demand.json --profiles profiles --algorithm elastic");
  option(sub, "DEMAND", o.file, "DEMAND.json, or - for standard input", "FILE");
  option(sub, "--profiles", o.profiles, "Folder with latency.csv and slo.csv", "DIR")->required();
  option(sub, "--algorithm", o.algorithm, packers(), "A");
  option(sub, "--slo-rule", o.slo_rule, slo_rules(), "RULE");
  option(sub, "--scenarios", o.scenarios, "One demand a line instead; one answer a line", "FILE");
  option(sub, "--verify", o.verify, "Check a schedule instead of making one", "FILE");
  flag(sub, "--interference", o.interference,
       "Plans must hold with interference (util.csv, interference.csv)");
  option(sub, "--pad", o.pad, pads(), "P");
  add_rules(sub, o);
  option(sub, "--time-limit-s", o.time_limit_s,
         fmt::format("Of {}, each demand [10]", packers_with(&packer_traits::takes_limit)), "S");
  option(sub, "--burst-margin", o.burst_margin,
         "Plan for so many deviations of Poisson arrivals within an SLO more [0]", "Z");
  option(sub, "--simulate-s", o.simulate_s, "Run the plan under Poisson arrivals for so long", "S");
  option(sub, "--svg", o.svg, "Write a picture of the plan", "FILE");
  option(sub, "--seed", o.seed, "Fixes everything random [1]", "N");
  flag(sub, "--json", o.json, "Print JSON");
}

void add_replan(CLI::App& app, replan_options& o) {
  CLI::App* sub = add(app, "replan", "Plan anew, again and again, as a load rises and falls",
                      "cohort replan demand.json --profiles profiles --algorithm elastic");
  pack_options& p = o.pack;
  option(sub, "DEMAND", p.file, "DEMAND.json, the full load, or - for standard input", "FILE")
      ->required();
  option(sub, "--profiles", p.profiles, "Folder with latency.csv and slo.csv", "DIR")->required();
  option(sub, "--algorithm", p.algorithm, packers(), "A")->required();
  option(sub, "--load", o.load, "CSV: time_s,part of the full load [two waves]", "FILE");
  option(sub, "--phase-s", o.phase_s, "Each model follows the load so much later [15]", "S");
  option(sub, "--length-s", o.length_s, "Length of the run [1800]", "S");
  option(sub, "--period-s", o.period_s, "Time from decision to decision [20]", "S");
  option(sub, "--reorganization-s", o.reorganization_s,
         "Time from a decision to its plan in service [12]", "S");
  option(sub, "--margin", o.margin, "Part by which plans exceed the forecast [0.1]", "X");
  option(sub, "--burst-margin", p.burst_margin,
         "On top, so many deviations of Poisson arrivals within an SLO [0]", "Z");
  option(sub, "--slo-rule", p.slo_rule, slo_rules(), "RULE");
  flag(sub, "--interference", p.interference,
       "Neighbours slow each other, and plans allow for it (util.csv, interference.csv)");
  option(sub, "--pad", p.pad, pads(), "P");
  add_rules(sub, p);
  option(sub, "--time-limit-s", p.time_limit_s,
         fmt::format("Of {}, each plan [10]", packers_with(&packer_traits::takes_limit)), "S");
  option(sub, "--svg", p.svg, "Draw rates, partitions in use and violations over time", "FILE");
  option(sub, "--seed", p.seed, "Fixes everything random [1]", "N");
  flag(sub, "--json", p.json, "Print JSON");
}

void add_subclusters(CLI::App& app, subclusters_options& o) {
  CLI::App* sub = add(app, "subclusters", "Spread models over sub-clusters evenly",
                      "cohort subclusters models.csv --count 20 --memory-mb 40000 --rate-cap 9000");
  option(sub, "MODELS", o.file, "MODELS.csv, or - for standard input", "FILE")->required();
  option(sub, "--count", o.count, "Number of sub-clusters", "L")->required();
  option(sub, "--memory-mb", o.memory_mb, "Memory of a backend", "S")->required();
  option(sub, "--rate-cap", o.rate_cap, "Most requests a second of a sub-cluster", "R")->required();
  option(sub, "--weight", o.weight,
         "Of memory against rate in the objective [average rate / average memory]", "W");
  option(sub, "--time-limit-s", o.time_limit_s, "Time to improve the assignment [10]", "S");
  option(sub, "--current", o.current, "An assignment to start from", "FILE");
  option(sub, "--max-move-cost", o.max_move_cost, "Most that leaving it may cost", "C");
  option(sub, "--solver", o.solver, "Who solves it [search]:\n" + solver_names().help(), "S");
  option(sub, "--seed", o.seed, "Fixes everything random [1]", "N");
  flag(sub, "--json", o.json, "Print JSON");
}

int run(int argc, char** argv) {
  CLI::App app{"Tries schedulers for DNN inference on your own numbers, in virtual time."};
  app.name("cohort");
  app.set_version_flag("--version", fmt::format("cohort {}", version_string),
                       "Print the version and exit");
  app.footer(
      "cohort SUBCOMMAND --help says more. Exit status: 0 done; 1 the answer is no; 2 bad usage or "
      "input.\n\nExample:\n  cohort workload --zoo a100 --devices 64 | cohort goodput - --policy "
      "deferred\n");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(36);

  workload_options workload;
  simulate_options simulate;
  goodput_options goodput;
  min_devices_options min_devices;
  pipeline_command_options pipeline;
  profile_options profile;
  add_workload(app, workload);
  add_simulate(app, simulate);
  add_goodput(app, goodput);
  add_min_devices(app, min_devices);
  autoscale_options autoscale;
  add_autoscale(app, autoscale);
  load_command_options load;
  page_options page;
  add_pipeline(app, pipeline);
  decode_command_options decode;
  interference_options interference;
  slice_options slice;
  add_profile(app, profile);
  add_slice(app, slice);
  add_interference(app, interference);
  add_load(app, load);
  add_decode(app, decode);
  add_page(app, page);
  pack_options pack;
  replan_options replan;
  subclusters_options subclusters;
  add_pack(app, pack);
  add_replan(app, replan);
  add_subclusters(app, subclusters);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    return complain(reason(app, e));
  }
  if (app.get_subcommands().empty()) {
    fmt::print(stderr, "{}", app.help());
    return 2;
  }
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "workload") return workload_command(workload);
  if (name == "simulate") return simulate_command(simulate);
  if (name == "goodput") return goodput_command(goodput);
  if (name == "min-devices") return min_devices_command(min_devices);
  if (name == "autoscale") return autoscale_command(autoscale);
  if (name == "pipeline") return pipeline_command(pipeline);
  if (name == "load") return load_command(load);
  if (name == "decode") return decode_command(decode);
  if (name == "report") return page_command(page);
  if (name == "pack") return pack_command(pack);
  if (name == "replan") return replan_command(replan);
  if (name == "interference") return interference_command(interference);
  if (name == "slice") return slice_command(slice);
  if (name == "subclusters") return subclusters_command(subclusters);
  return profile_command(profile);
}

}  // namespace
}  // namespace cohort::commands

int main(int argc, char** argv) {
  using cohort::commands::complain;
  // May start the program anew, which the other subcommands need not wait for.
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "profile" || name == "interference") cohort::runtime::prepare_blas(argv);
  try {
    return cohort::commands::run(argc, argv);
  } catch (const cohort::error& e) {
    return complain(e.what());
  } catch (const std::bad_alloc&) {
    return complain("out of memory: expected a smaller workload");
  }
}
