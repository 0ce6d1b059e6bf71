// SPDX-License-Identifier: Apache-2.0
// The command line of `cohort`: options and help. Each subcommand has a source file of its own.
#include <models/registry.hpp>
#include <registry/admission.hpp>
#include <registry/cluster.hpp>
#include <registry/decode_tables.hpp>
#include <registry/number_option.hpp>
#include <registry/parse_errors.hpp>
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
#include <concepts>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

/// Adds a subcommand under a heading, with an example below its help.
CLI::App* add(CLI::App& app, const char* group, const char* name, const char* what,
              const std::string& example) {
  CLI::App* sub = app.add_subcommand(name, what)->group(group);
  sub->footer("Example: " + example);
  return sub;
}

/// Adds an option or argument; its default is the value of `into`.
template <class T>
CLI::Option* option(CLI::App* sub, const char* name, T& into, const std::string& what,
                    const char* type) {
  CLI::Option* o = sub->add_option(name, into, what)->type_name(type);
  if constexpr (std::same_as<T, std::string>) o->capture_default_str();
  return o;
}

/// Adds an option with the names of a table as values.
template <class T>
CLI::Option* choice_option(CLI::App* sub, const char* name, T& into, const std::string& what,
                           const name_list& names, const char* type) {
  return option(sub, name, into, what + names.help(), type);
}

void flag(CLI::App* sub, const char* name, bool& into, const char* what) {
  sub->add_flag(name, into, what)->disable_flag_override();
}

// Options shared by several subcommands.

void workload_argument(CLI::App* sub, std::string& file) {
  option(sub, "WORKLOAD", file, "workload file (JSON); - reads standard input", "FILE")->required();
}
void policy_option(CLI::App* sub, text_option& policy, const name_list& names, const char* type) {
  choice_option(sub, "--policy", policy,
                std::string{type} == "P" ? "scheduling policy (default: the workload's)"
                                         : "policies to compare (default: the workload's)",
                names, type);
}
void gather_option(CLI::App* sub, policy_options& how) {
  choice_option(sub, "--gather", how.gather,
                fmt::format("rule that picks the requests of a batch (default by policy: {})",
                            default_gathers()),
                gather_names(), "RULE");
}
void rate_option(CLI::App* sub, text_option& rate) {
  option(sub, "--rate", rate,
         "rate over all models, in requests per second (default: the workload's); refused with a "
         "trace",
         "RPS");
}
void devices_option(CLI::App* sub, text_option& devices) {
  option(sub, "--devices", devices, "override the workload's number of devices", "N");
}
void subclusters_option(CLI::App* sub, text_option& file) {
  option(sub, "--subclusters", file,
         "read an answer of `cohort subclusters`; each sub-cluster becomes a pool of equally many "
         "devices",
         "FILE");
}
void reality_option(CLI::App* sub, text_option& file) {
  option(sub, "--reality", file,
         "read noise and faults of the devices (JSON); replaces the field `reality` of the "
         "workload",
         "FILE");
}
void duration_option(CLI::App* sub, text_option& duration_s) {
  option(sub, "--duration-s", duration_s, "override the measured duration, in seconds", "S");
}
void arrivals_options(CLI::App* sub, std::string& process, text_option& shape) {
  option(sub, "--arrivals", process, "arrival process: poisson, gamma (bursty) or uniform",
         "PROCESS");
  option(sub, "--shape", shape, "shape of gamma gaps, 0.001 to 1; smaller is burstier (default 1)",
         "G");
}
void max_length_option(CLI::App* sub, text_option& length, const char* what) {
  option(sub, "--max-length", length,
         fmt::format("{} (default: max_length of the model's config.pbtxt, or 512)", what), "N");
}
void trial_options(CLI::App* sub, auto& stage_load, text_option& hand_over_ms) {
  option(sub, "--stage-load", stage_load,
         "load of the trial runs of --stages auto, as a fraction of the peak rate (default 0.6)",
         "F");
  option(sub, "--hand-over-ms", hand_over_ms,
         "time between two stages in these runs, in milliseconds (default: measured)", "X");
}
void profiles_option(CLI::App* sub, std::string& folder) {
  option(sub, "--profiles", folder, "folder with latency.csv and slo.csv", "DIR")->required();
}
void seed_option(CLI::App* sub, std::string& seed, const char* what = "seed of everything random") {
  option(sub, "--seed", seed, what, "N");
}
void trace_option(CLI::App* sub, text_option& file, const char* row) {
  option(sub, "--trace", file,
         fmt::format("write a Chrome trace, one row per {}, to open in Perfetto", row), "FILE");
}
void svg_option(CLI::App* sub, text_option& file, const char* what) {
  option(sub, "--svg", file, what, "FILE");
}
void json_flag(CLI::App* sub, bool& json) {
  flag(sub, "--json", json, "print JSON instead of a table");
}

void add_workload(CLI::App& app, workload_options& o) {
  CLI::App* sub =
      add(app, "Simulate", "workload", "Make a workload file from a table of measured models.",
          "cohort workload --zoo a100 --devices 64 > a100.json");
  heading(*sub, "Models");
  option(
      sub, "--zoo", o.zoo,
      "table of models to use\n\ta100\t37 models on an A100\n\t1080ti\t35 models on a GTX 1080 Ti",
      "ZOO")
      ->required();
  option(sub, "--models", o.models, "models to take, in this order (default: all)", "NAME,...");
  option(sub, "--mix", o.mix,
         "models to keep\n\tall\tevery model\n"
         "\tstrong\tmodels that gain much from batching (beta/alpha > 2)\n"
         "\tweak\tthe other models",
         "MIX");
  option(sub, "--copies", o.copies, "copies of each model, named NAME-1 to NAME-K", "K");
  option(sub, "--slo-ms", o.slo_ms,
         "one SLO for all models, in milliseconds (default: each model's own, from the table)",
         "X");
  heading(*sub, "Load and devices");
  option(sub, "--devices", o.devices, "number of devices", "N")->required();
  option(sub, "--popularity", o.popularity,
         "share of each model in the rate: equal, or zipf by position in the list", "HOW");
  arrivals_options(sub, o.arrivals, o.shape);
  heading(*sub, "Output");
  flag(sub, "--json", o.json, "no effect: a workload is always JSON");
}

void add_simulate(CLI::App& app, simulate_options& o) {
  CLI::App* sub = add(app, "Simulate", "simulate", "Run one policy on a workload in virtual time.",
                      "cohort simulate a100.json --policy deferred --rate 15000");
  workload_argument(sub, o.file);
  heading(*sub, "Policy");
  policy_option(sub, o.policy, simulated_policy_names(), "P");
  gather_option(sub, o.how);
  option(sub, "--refuse-early", o.refuse_early,
         "refuse a request on arrival if its model is overloaded and it would be late (default on)",
         "on|off");
  add_tuning_options(*sub, o.how);
  heading(*sub, "Run");
  rate_option(sub, o.rate);
  devices_option(sub, o.devices);
  subclusters_option(sub, o.subclusters);
  duration_option(sub, o.duration_s);
  reality_option(sub, o.reality);
  seed_option(sub, o.seed);
  heading(*sub, "Output");
  flag(sub, "--dispatches", o.dispatches, "list every batch");
  trace_option(sub, o.trace, "device");
  json_flag(sub, o.json);
}

/// Options shared by `goodput` and `min-devices`, except their own search.
template <class Options>
void add_policies(CLI::App* sub, Options& o) {
  heading(*sub, "Policies");
  policy_option(sub, o.policy, simulated_policy_names(), "P[,Q...]");
  choice_option(sub, "--gather", o.how.gather,
                fmt::format("rule that picks the requests of a batch (default: best with several "
                            "policies; with one by policy: {})",
                            default_gathers()),
                searched_gather_names(), "RULE");
  add_tuning_options(*sub, o.how);
}
template <class Options>
void add_search_options(CLI::App* sub, Options& o, const char* seeds) {
  option(sub, "--bad-limit", o.bad_limit, "largest fraction of late or dropped requests allowed",
         "X");
  option(sub, "--judge", o.judge,
         "scope of that limit: every model separately, or the total of all requests",
         "model|total");
  option(sub, "--seeds", o.seeds, seeds, "N");
  seed_option(sub, o.seed, "seed of the first run; run k uses seed + k");
  duration_option(sub, o.duration_s);
  reality_option(sub, o.reality);
}

void add_goodput(CLI::App& app, goodput_options& o) {
  CLI::App* sub = add(app, "Simulate", "goodput",
                      "Find the highest request rate at which every model still meets its SLO.",
                      "cohort goodput a100.json --policy adaptive,eager");
  workload_argument(sub, o.file);
  add_policies(sub, o);
  heading(*sub, "Search");
  option(sub, "--precision", o.precision, "fraction of the rate within which it must be known",
         "X");
  add_search_options(sub, o, "runs per rate, averaged");
  devices_option(sub, o.devices);
  subclusters_option(sub, o.subclusters);
  heading(*sub, "Output");
  json_flag(sub, o.json);
}

void add_cluster(CLI::App& app, cluster_options& o) {
  CLI::App* sub = add(app, "Simulate", "cluster",
                      "Compare ways to route requests to many machines behind a gateway.",
                      "cohort cluster w.json --endpoints 8 --routes picker,round-robin");
  option(sub, "WORKLOAD", o.file,
         "workload file (JSON), whose devices are endpoints; - reads standard input", "FILE");
  heading(*sub, "Routes");
  option(sub, "--routes", o.routes,
         fmt::format("routes to compare (default: all); with --prompts {}{}",
                     prompt_route_names().names(), route_names().help()),
         "R,...");
  option(sub, "--policy", o.policy, "batching policy of picker and engine", "P");
  option(sub, "--endpoint-policy", o.endpoint_policy,
         "batching policy of the endpoints themselves, for the other routes", "P");
  option(sub, "--endpoints", o.endpoints,
         "number of endpoints (default: the workload's devices; 8 for prompts)", "N");
  option(sub, "--rate", o.rate,
         "rate at which to count the requests in time, in requests per second (default: search for "
         "the highest rate)",
         "RPS");
  heading(*sub, "Prompts");
  option(sub, "--prompts", o.prompts,
         "read recorded prompts instead of WORKLOAD: CSV with "
         "TIMESTAMP,ContextTokens,GeneratedTokens or "
         "arrival_ms,prompt_tokens,output_tokens, or JSON lines with timestamp, input_length, "
         "output_length and hash_ids",
         "FILE");
  option(sub, "--speed", o.speed, "play the trace so many times as fast (default 1)", "X");
  option(sub, "--endpoint", o.endpoint,
         "read rates, slots and memory of an endpoint (JSON; default: those on the page)", "FILE");
  option(sub, "--ttft-slo-ms", o.ttft_slo_ms,
         "limit of the first token, in milliseconds (default 2000)", "X");
  option(sub, "--inter-token-slo-ms", o.inter_token_slo_ms,
         "limit of the mean time between tokens of a request, in milliseconds (default 150)", "X");
  heading(*sub, "Search");
  option(sub, "--precision", o.precision, "fraction of the rate within which it must be known",
         "X");
  add_search_options(sub, o, "runs per rate, averaged");
  heading(*sub, "Output");
  json_flag(sub, o.json);
}

void add_min_devices(CLI::App& app, min_devices_options& o) {
  CLI::App* sub = add(app, "Simulate", "min-devices",
                      "Find the fewest devices on which every model meets its SLO.",
                      "cohort min-devices a100.json --policy deferred,eager --rate 10000");
  workload_argument(sub, o.file);
  add_policies(sub, o);
  heading(*sub, "Search");
  rate_option(sub, o.rate);
  option(sub, "--limit", o.limit, "largest number of devices to try", "N");
  add_search_options(sub, o, "runs per number of devices, averaged");
  heading(*sub, "Output");
  json_flag(sub, o.json);
}

void add_autoscale(CLI::App& app, autoscale_options& o) {
  CLI::App* sub = add(app, "Simulate", "autoscale",
                      "Run a changing load on a number of devices that follows it.",
                      "cohort autoscale a100.json --policy adaptive --rate 10000 --load day.csv");
  workload_argument(sub, o.file);
  heading(*sub, "Policy");
  policy_option(sub, o.policy, policy_names(), "P");
  gather_option(sub, o.how);
  add_tuning_options(*sub, o.how);
  heading(*sub, "Load");
  option(sub, "--rate", o.rate,
         "rate at full load over all models, in requests per second (default: the workload's)",
         "RPS");
  option(sub, "--load", o.load,
         "fraction of that rate over time: CSV with the columns time_s,part, linear between rows "
         "(default: reality.load of the workload)",
         "FILE");
  option(sub, "--duration-s", o.duration_s, "measured duration, in seconds (default 1800)", "S");
  reality_option(sub, o.reality);
  seed_option(sub, o.seed);
  heading(*sub, "Scaling");
  option(sub, "--devices", o.devices, "devices at the start (default: the workload's)", "N");
  option(sub, "--limit", o.limit, "largest number of devices", "N");
  option(sub, "--delay-s", o.delay_s,
         "time from a scaling decision until a new device is ready, in seconds", "S");
  option(sub, "--window-s", o.window_s,
         "time between two scaling decisions, each from the requests of that window, in seconds",
         "S");
  option(sub, "--calm-windows", o.calm_windows,
         "windows in a row that must need fewer devices before any is released", "N");
  option(sub, "--least", o.least, "also search for the fewest devices that would do, to compare",
         "on|off");
  heading(*sub, "Output");
  svg_option(sub, o.svg, "draw the number of devices over time");
  json_flag(sub, o.json);
}

void add_pipeline(CLI::App& app, pipeline_command_options& o) {
  CLI::App* sub = add(app, "Simulate", "pipeline",
                      "Run a model cut into stages; requests join and leave between stages.",
                      "cohort pipeline unet.json --policy dvabatch --rate 1000");
  option(sub, "MODEL", o.file, "file of a staged model (JSON); - reads standard input", "FILE")
      ->required();
  heading(*sub, "Policy");
  choice_option(sub, "--policy", o.policy, "rule by which requests share batches",
                staged_policy_names(), "P")
      ->required();
  heading(*sub, "Load");
  option(sub, "--rate", o.rate, "use Poisson arrivals at this rate, in requests per second", "RPS");
  option(sub, "--requests", o.requests, "requests to draw with --rate (default 30000)", "N");
  option(sub, "--arrivals", o.arrivals,
         "read arrivals instead of drawing them: CSV with the columns time_ms[,size]", "FILE");
  option(sub, "--lengths", o.lengths,
         "read request sizes from the column size of a CSV, used in order", "FILE");
  seed_option(sub, o.seed);
  heading(*sub, "Device");
  option(sub, "--buffer-sets", o.buffer_sets,
         "buffers between two stages (default: the model's, or 2)", "K");
  option(sub, "--overhead-ms", o.overhead_ms, "time added to every run of a stage, in milliseconds",
         "X");
  heading(*sub, "Output");
  flag(sub, "--events", o.events, "list the latency of every request");
  trace_option(sub, o.trace, "stage");
  svg_option(sub, o.svg, "draw the first 200 runs on a timeline");
  json_flag(sub, o.json);
}

constexpr const char* stages_help =
    "; auto takes the number with the lowest mean latency in trial runs in virtual time";

void add_profile(CLI::App& app, profile_options& o) {
  CLI::App* sub = add(app, "Measure", "profile", "Measure how long models run on this machine.",
                      "cohort profile --model all --executor host --out profiles");
  heading(*sub, "Models");
  option(sub, "--model", o.model,
         fmt::format("models to measure: ONNX files, all, or some of {}",
                     fmt::join(models::model_names(), ", ")),
         "NAME|[NAME=]FILE.onnx,...")
      ->required();
  max_length_option(sub, o.max_length,
                    "length at which an ONNX file of dynamic length is measured");
  option(sub, "--slo-ms", o.slo_ms,
         "SLO to write, in milliseconds (default: slo_ms of the model's config.pbtxt, or twice the "
         "latency of batch 4, at least 20)",
         "X");
  option(sub, "--stages", o.stages,
         fmt::format("stages to cut each model into (default: the model's own){}", stages_help),
         "N|auto");
  trial_options(sub, o.stage_load, o.hand_over_ms);
  heading(*sub, "Measurement");
  choice_option(sub, "--executor", o.executor, "device to run on", profile_executors.list(), "E");
  option(sub, "--batches", o.batches,
         "batch sizes to measure; auto starts with few and adds sizes where the latency is not "
         "linear",
         "B,...|auto");
  option(sub, "--largest-batch", o.largest_batch,
         "largest batch size of --batches auto (default 32)", "N");
  option(sub, "--partitions", o.partitions, "shares of the device to measure, in percent", "P,...");
  option(sub, "--repeats", o.repeats, "runs per batch size; the median counts", "N");
  option(sub, "--time-limit-s", o.time_limit_s,
         "time limit per model, in seconds, after three runs per batch size", "S");
  seed_option(sub, o.seed, "seed of weights, inputs and trial runs");
  heading(*sub, "Output");
  option(sub, "--out", o.out, "folder to write CSV and JSON files to", "DIR")->required();
  json_flag(sub, o.json);
}

void add_slice(CLI::App& app, slice_options& o) {
  CLI::App* sub =
      add(app, "Measure", "slice", "Cut an ONNX model into stages that a pipeline can run.",
          "cohort slice bert/1/model.onnx --out models --max-length 128");
  option(sub, "MODEL", o.file, "model file, FILE.onnx", "FILE")->required();
  heading(*sub, "Stages");
  option(sub, "--stages", o.stages, fmt::format("number of stages{}", stages_help), "N|auto");
  trial_options(sub, o.stage_load, o.hand_over_ms);
  option(sub, "--most-tensors", o.most_tensors, "largest number of tensors that may cross a cut",
         "N");
  option(sub, "--most-pieces", o.most_pieces,
         "largest number of pieces to measure at first; more are thinned out evenly", "N");
  heading(*sub, "Measurement");
  option(sub, "--largest-batch", o.largest_batch,
         "largest batch to measure, after the powers of two below it", "N");
  max_length_option(sub, o.max_length,
                    "longest input of a model of dynamic length; measured at 1/8, 1/4, 1/2 and "
                    "all of it");
  option(sub, "--repeats", o.repeats, "runs per batch size; the median counts", "N");
  seed_option(sub, o.seed, "seed of inputs and trial runs");
  heading(*sub, "Output");
  option(sub, "--out", o.out,
         "folder to write NAME/1/model.onnx, NAME/1/stages/*.onnx, NAME.json and NAME.stages.json "
         "to",
         "DIR")
      ->required();
  option(sub, "--name", o.name,
         "name of the model (default: the file's, or NAME of NAME/1/model.onnx)", "NAME");
  option(sub, "--slo-ms", o.slo_ms,
         "SLO to write, in milliseconds (default: twice the latency of batch 4, at least 20)", "X");
  json_flag(sub, o.json);
}

void add_interference(CLI::App& app, interference_options& o) {
  CLI::App* sub = add(app, "Measure", "interference",
                      "Measure how much models slow each other down side by side.",
                      "cohort interference --profiles profiles --pairs all --out profiles");
  heading(*sub, "Models");
  option(sub, "--profiles", o.profiles,
         "folder that `cohort profile --partitions 50,100` wrote for two models or more", "DIR")
      ->required();
  option(sub, "--model", o.model, "read the models of the profile that are ONNX files",
         "[NAME=]FILE.onnx,...");
  max_length_option(sub, o.max_length,
                    "length at which an ONNX file of dynamic length is measured");
  choice_option(sub, "--pairs", o.pairs, "pairs of models to measure", pair_choice_names(), "PAIRS")
      ->required();
  heading(*sub, "Measurement");
  choice_option(sub, "--executor", o.executor, "device to run on", profile_executors.list(), "E");
  option(sub, "--batches", o.batches, "batch sizes (default: 1 and 8, or the largest measured)",
         "B,...");
  option(sub, "--sizes", o.sizes,
         "partition sizes, in percent; every two that fit the device are tried (default: all that "
         "were measured for every model)",
         "P,...");
  option(sub, "--seconds", o.seconds,
         "time for two batches on two partitions, in seconds, divided among their blocks", "S");
  option(sub, "--turns", o.turns, "blocks side by side, each between two blocks alone", "N");
  choice_option(sub, "--clock", o.clock, "time that counts", clock_names(), "C");
  option(sub, "--hold-back", o.hold_back,
         "fraction of the pairs that the fit does not see and is judged by; with fewer than 10 "
         "pairs each pair in turn",
         "F");
  seed_option(sub, o.seed, "seed of weights, inputs, and the order and choice of pairs");
  heading(*sub, "Output");
  option(sub, "--out", o.out,
         "folder to write to, possibly that of --profiles; pairs already there are not measured "
         "again",
         "DIR")
      ->required();
  json_flag(sub, o.json);
}

void add_load(CLI::App& app, load_command_options& o) {
  CLI::App* sub =
      add(app, "Measure", "load", "Send requests to a server in an open loop; report goodput.",
          "cohort load --url http://127.0.0.1:8000 --rate 200 --duration-s 10");
  heading(*sub, "Server");
  option(sub, "--url", o.url, "address of the server", "URL");
  option(sub, "--management-url", o.management_url,
         "address of its metrics, if they have a separate port (default: --url)", "URL");
  option(sub, "--api-key", o.api_key,
         "key to show with each request (default: $COHORT_API_KEY, else none)", "KEY")
      ->envname("COHORT_API_KEY");
  registry::refuse_empty_key(*sub);
  option(sub, "--connections", o.connections, "largest number of open connections", "N");
  heading(*sub, "Load");
  option(sub, "--rate", o.rate, "rate over all models, in requests per second", "RPS")->required();
  option(sub, "--duration-s", o.duration_s, "time to send for, in seconds", "S");
  arrivals_options(sub, o.arrivals, o.shape);
  option(sub, "--models", o.models, "models to send requests to (default: all that are served)",
         "NAME,...");
  option(sub, "--timeout-ms", o.timeout_ms,
         "deadline of each request, in milliseconds (default: the model's SLO)", "MS");
  option(sub, "--give-up-s", o.give_up_s,
         "time after its deadline at which a request without an answer counts as lost, in seconds",
         "S");
  flag(sub, "--binary", o.binary, "send and receive tensors as binary data, not as JSON");
  seed_option(sub, o.seed, "seed of arrivals and inputs");
  heading(*sub, "Output");
  option(sub, "--verify", o.verify, "answers to compare with the reference", "N");
  option(sub, "--weights-seed", o.weights_seed, "seed of the server's weights, for --verify", "N");
  json_flag(sub, o.json);
}

void add_decode(CLI::App& app, decode_command_options& o) {
  CLI::App* sub =
      add(app, "Simulate", "decode", "Count the cost of batching LLM sequences in virtual time.",
          "cohort decode requests.csv --batch 8 --method baton");
  option(sub, "REQUESTS", o.file,
         "CSV with the columns id,prompt_tokens,output_tokens[,arrival_ms,priority]; - reads "
         "standard input",
         "FILE")
      ->required();
  heading(*sub, "Batching");
  option(sub, "--batch", o.batch, "sequences that a batch holds", "B")->required();
  choice_option(sub, "--method", o.method, "way in which sequences share the batch",
                decode_methods.list(), "M")
      ->required();
  choice_option(sub, "--pick", o.pick, "next sequence to enter; methods in groups always use fifo",
                decode_picks.list(), "P");
  choice_option(sub, "--kernel", o.kernel,
                "keys and values that attention reads (default dense; ragged with orca)",
                decode_kernels.list(), "K");
  option(sub, "--cost", o.cost,
         "costs, JSON: {iteration_ms, per_token_ms, per_column_ms} (default: 1 ms an iteration)",
         "FILE");
  heading(*sub, "Admission");
  choice_option(sub, "--admission", o.admission,
                "also serve the requests under SLOs by these rules; orca prefills within the "
                "iterations, baton beside them",
                admission_names(), "P[,Q...]");
  option(sub, "--ttft-slo-ms", o.ttft_slo_ms,
         "limit for the time to the first token, in milliseconds (default: none)", "X");
  option(sub, "--inter-token-slo-ms", o.inter_token_slo_ms,
         "limit for the time between two tokens of a sequence, in milliseconds (default: none)",
         "Y");
  option(sub, "--prefill-ms", o.prefill_ms,
         "time of a prefill run with --admission, besides its tokens, in milliseconds", "MS");
  heading(*sub, "Output");
  trace_option(sub, o.trace, "slot");
  seed_option(sub, o.seed, "no effect: nothing is random");
  json_flag(sub, o.json);
}

void add_page(CLI::App& app, page_options& o) {
  CLI::App* sub = add(app, "Measure", "report", "Make an HTML page of profiles and load runs.",
                      "cohort report --profile profiles --run eager=eager.json --out report.html");
  heading(*sub, "Input");
  option(sub, "--profile", o.profile, "folder that `cohort profile` wrote", "DIR")->required();
  option(sub, "--run", o.runs, "output of `cohort load --json`; repeatable", "NAME=FILE")
      ->required();
  option(sub, "--figure", o.figures,
         "add a drawing of `cohort pipeline`, `pack` or `replan`; repeatable", "CAPTION=FILE.svg");
  heading(*sub, "Load runs at rising rates");
  option(sub, "--sweep", o.sweep.runs, "draw a load run over its rate; repeatable", "NAME=FILE");
  option(sub, "--predicted", o.sweep.predicted,
         "add what `cohort simulate --json` printed for such a run; repeatable", "NAME=FILE");
  option(sub, "--setting", o.sweep.setting, "add a description of these runs", "TEXT");
  option(sub, "--made", o.made, "add a line on commit, date and machine", "TEXT");
  heading(*sub, "Load runs over time");
  option(sub, "--course", o.course.runs, "draw a load run second by second; repeatable",
         "NAME=FILE");
  option(sub, "--event", o.course.event, "mark an event, at this time in seconds", "SECONDS=TEXT");
  option(sub, "--learned", o.course.learned,
         "draw the device factors that the server learned: CSV, time_s,device,factor", "FILE");
  heading(*sub, "Output");
  option(sub, "--out", o.out, "page to write: one file without links to others", "FILE")
      ->required();
}

// Options shared by `pack` and `replan`.

void add_planning_options(CLI::App* sub, pack_options& o, const char* limit) {
  choice_option(sub, "--slo-rule", o.slo_rule,
                "longest wait of a request that a plan must allow for", slo_rule_names(), "RULE");
  flag(sub, "--interference", o.interference,
       "allow for interference between neighbours (util.csv, interference.csv)");
  choice_option(sub, "--pad", o.pad, "way to allow for interference (default worst-neighbour)",
                pad_names(), "P");
  const std::string those = packers_with(&packer_traits::takes_rules);
  choice_option(sub, "--order", o.order,
                fmt::format("model to place next, with {} (default by algorithm)", those),
                order_names(), "O");
  choice_option(sub, "--knee", o.knee,
                fmt::format("best size for a model, with {} (default by algorithm)", those),
                knee_names(), "K");
  choice_option(sub, "--fit", o.fit, fmt::format("gpu-let to use, with {} (default best)", those),
                fit_names(), "F");
  option(sub, "--time-limit-s", o.time_limit_s,
         fmt::format("time limit of {} for each {}, in seconds (default 10)",
                     packers_with(&packer_traits::takes_limit), limit),
         "S");
  option(sub, "--burst-margin", o.burst_margin,
         "capacity to add, in standard deviations of Poisson arrivals within an SLO", "Z");
}

void add_pack(CLI::App& app, pack_options& o) {
  CLI::App* sub =
      add(app, "Plan", "pack", "Place models on partitions of GPUs so that every SLO is met.",
          "cohort pack demand.json --profiles profiles --algorithm elastic");
  option(sub, "DEMAND", o.file, "demand file (JSON); - reads standard input", "FILE");
  heading(*sub, "Input");
  profiles_option(sub, o.profiles);
  option(sub, "--scenarios", o.scenarios,
         "read one demand per line instead of DEMAND, and print one answer per line", "FILE");
  option(sub, "--verify", o.verify, "check this schedule instead of making one", "FILE");
  heading(*sub, "Planning");
  choice_option(sub, "--algorithm", o.algorithm,
                "way to place the models (required unless --verify is given)", packer_names(), "A");
  add_planning_options(sub, o, "demand");
  heading(*sub, "Output");
  option(sub, "--simulate-s", o.simulate_s,
         "run the plan under Poisson arrivals for this time, in seconds", "S");
  seed_option(sub, o.seed);
  svg_option(sub, o.svg, "draw the plan");
  json_flag(sub, o.json);
}

void add_replan(CLI::App& app, replan_options& o) {
  CLI::App* sub =
      add(app, "Plan", "replan", "Run a load that rises and falls, and plan again to follow it.",
          "cohort replan demand.json --profiles profiles --algorithm elastic");
  pack_options& p = o.pack;
  option(sub, "DEMAND", p.file, "demand at full load (JSON); - reads standard input", "FILE")
      ->required();
  heading(*sub, "Load");
  profiles_option(sub, p.profiles);
  option(sub, "--load", o.load,
         "fraction of the full load over time: CSV with the columns time_s,part (default: two "
         "waves)",
         "FILE");
  option(sub, "--phase-s", o.phase_s,
         "delay of each model's load behind the one before, in seconds", "S");
  option(sub, "--length-s", o.length_s, "length of the run, in seconds", "S");
  seed_option(sub, p.seed);
  heading(*sub, "Planning");
  option(sub, "--period-s", o.period_s, "time between two decisions, in seconds", "S");
  option(sub, "--reorganization-s", o.reorganization_s,
         "time from a decision until its plan is in service, in seconds", "S");
  option(sub, "--margin", o.margin, "fraction by which plans exceed the forecast", "X");
  choice_option(sub, "--algorithm", p.algorithm, "way to place the models", packer_names(), "A")
      ->required();
  add_planning_options(sub, p, "plan");
  heading(*sub, "Output");
  svg_option(sub, p.svg, "draw rates, partitions in use and violations over time");
  json_flag(sub, p.json);
}

void add_subclusters(CLI::App& app, subclusters_options& o) {
  CLI::App* sub = add(app, "Plan", "subclusters", "Spread models evenly over sub-clusters.",
                      "cohort subclusters models.csv --count 20 --memory-mb 40000 --rate-cap 9000");
  option(sub, "MODELS", o.file,
         "CSV with the columns name,rate_rps,static_mb,dynamic_mb[,move_cost]; - reads standard "
         "input",
         "FILE")
      ->required();
  heading(*sub, "Limits");
  option(sub, "--count", o.count, "number of sub-clusters", "L")->required();
  option(sub, "--memory-mb", o.memory_mb, "memory of a backend, in MB (10^6 bytes)", "S")
      ->required();
  option(sub, "--rate-cap", o.rate_cap, "largest rate of a sub-cluster, in requests per second",
         "R")
      ->required();
  heading(*sub, "Search");
  option(sub, "--weight", o.weight,
         "weight of memory against rate (default: average rate / average memory)", "W");
  option(sub, "--time-limit-s", o.time_limit_s, "time to improve the assignment, in seconds", "S");
  option(sub, "--current", o.current, "read an assignment to start from", "FILE");
  option(sub, "--max-move-cost", o.max_move_cost,
         "limit for the cost of leaving --current (default: none)", "C");
  choice_option(sub, "--solver", o.solver, "solver to use", solver_names(), "S");
  seed_option(sub, o.seed);
  heading(*sub, "Output");
  json_flag(sub, o.json);
}

/// Prints an error as one line, whatever it contains. @returns The exit status.
int complain(std::string_view what) {
  std::string line{what};
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "cohort: {}\n", line);
  return 2;
}

int run(int argc, char** argv) {
  CLI::App app{"Try batch schedulers for DNN and LLM inference on your own numbers."};
  app.name("cohort");
  app.formatter(std::make_shared<help_format>());
  app.set_help_flag("-h,--help", "print this help; after SUBCOMMAND, its options");
  app.set_version_flag("--version", fmt::format("cohort {}", version_string), "print the version");
  app.footer(
      "Exit status: 0 done; 1 the answer is no; 2 bad usage or bad input.\n\n"
      "Example: cohort workload --zoo a100 --devices 64 | cohort goodput - --policy deferred");
  app.require_subcommand(0, 1);

  workload_options workload;
  simulate_options simulate;
  goodput_options goodput;
  cluster_options cluster;
  min_devices_options min_devices;
  autoscale_options autoscale;
  pipeline_command_options pipeline;
  decode_command_options decode;
  pack_options pack;
  replan_options replan;
  subclusters_options subclusters;
  profile_options profile;
  slice_options slice;
  interference_options interference;
  load_command_options load;
  page_options page;
  add_workload(app, workload);
  add_simulate(app, simulate);
  add_goodput(app, goodput);
  add_cluster(app, cluster);
  add_min_devices(app, min_devices);
  add_autoscale(app, autoscale);
  add_pipeline(app, pipeline);
  add_decode(app, decode);
  add_pack(app, pack);
  add_replan(app, replan);
  add_subclusters(app, subclusters);
  add_profile(app, profile);
  add_slice(app, slice);
  add_interference(app, interference);
  add_load(app, load);
  add_page(app, page);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    return complain(registry::reason(app, e));
  }
  if (app.get_subcommands().empty()) {
    fmt::print(stderr, "{}", app.help());
    return 2;
  }
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "workload") return workload_command(workload);
  if (name == "simulate") return simulate_command(simulate);
  if (name == "goodput") return goodput_command(goodput);
  if (name == "cluster") return cluster_command(cluster);
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
  // This may restart the program, so it is not done for the other subcommands.
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
