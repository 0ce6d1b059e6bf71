// SPDX-License-Identifier: Apache-2.0
#include "parse_options.hpp"

#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>
#include <cohort/serve/server_settings.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <inference/model_service.hpp>
#include <inference/start_cache.hpp>
#include <inference/triton_options.hpp>
#include <map>
#include <memory>
#include <optional>
#include <registry/number_option.hpp>
#include <registry/parse_errors.hpp>
#include <serve/log.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::inference {
namespace {

using registry::one_of;
using registry::within;

/// By our option: the name that the user gave, if that is tritonserver's.
std::map<std::string, std::string>& given_as() {
  static std::map<std::string, std::string> names;
  return names;
}

[[noreturn]] void fail(std::string what) {
  const std::string option = what.substr(0, what.find(':'));
  if (const auto at = given_as().find(option); at != given_as().end()) {
    what.replace(0, option.size(), at->second);
  }
  fmt::print(stderr, "inference_server: {}\n", what);
  std::exit(2);
}

double number(const std::string& option, const std::string& text, double least, double most) {
  if (const std::string why = registry::objection(text, least, most); !why.empty()) {
    fail(fmt::format("{}: {}", option, why));
  }
  return std::strtod(text.c_str(), nullptr);
}

/// @param given The option's value; null if it was not given.
std::string cache_folder(const std::string* given) {
  if (given == nullptr) return default_cache_folder();
  if (*given == "off") return {};
  std::error_code ignored;
  if (given->empty() || (std::filesystem::exists(*given, ignored) &&
                         !std::filesystem::is_directory(*given, ignored))) {
    fail(fmt::format("--cache: got \"{}\", expected off or a folder", *given));
  }
  return *given;
}

/// Splits each NAME=VALUE.
template <class Use>
void pairs(const std::string& option, const std::vector<std::string>& texts, Use use) {
  for (const std::string& t : texts) {
    const std::size_t at = t.find('=');
    if (at == 0 || at == std::string::npos) {
      fail(fmt::format("{}: got {}, expected MODEL=VALUE", option, t));
    }
    use(t.substr(0, at), t.substr(at + 1));
  }
}

/// tritonserver options that have no counterpart in `options`.
struct triton_choices {
  bool has_http = true;
  bool has_metrics = true;
  serve::log_levels log;
  std::optional<std::string> cache{};
  std::optional<std::size_t> cache_bytes{};
};

constexpr double most_cache_bytes = 1ULL << 44U;  // Same limit as --response-cache-mib.

/// The size in bytes that --cache-config asks for.
std::size_t cache_bytes(const std::string& text) {
  constexpr std::string_view local = "local,size=";
  if (!text.starts_with(local)) {
    fail(fmt::format("--cache-config: got {}, expected local,size=BYTES",
                     formats::quote_short(text)));
  }
  return static_cast<std::size_t>(
      number("--cache-config", text.substr(local.size()), 0, most_cache_bytes));
}

void add_triton_options(CLI::App& app, options& o, triton_choices& t) {
  registry::heading(app, "Options of tritonserver");
  const auto boolean = [&app](const char* name, bool& into, const char* what) {
    app.add_option(name, into, what)
        ->type_name("BOOL")
        ->transform([](const std::string& text) { return CLI::detail::to_lower(text); })
        ->check(one_of({"true", "false", "on", "off", "1", "0"}));
  };
  boolean("--allow-http", t.has_http, "answer over HTTP; only true is possible");
  boolean("--allow-metrics", t.has_metrics, "serve metrics");
  boolean("--exit-on-error", o.exit_on_error, "end if a model of the start cannot be loaded");
  boolean("--strict-readiness", o.strict_readiness, "be ready only if no model failed to load");
  boolean("--log-info", t.log.info, "log lines of severity info");
  boolean("--log-warning", t.log.warning, "log warnings");
  boolean("--log-error", t.log.error, "log errors");
  app.add_option("--cache-config", t.cache, "memory of the response cache, in bytes")
      ->type_name("local,size=BYTES");
  app.add_option("--response-cache-byte-size", t.cache_bytes, "the same in an older spelling")
      ->type_name("BYTES")
      ->check(within(0, most_cache_bytes));
  app.add_option("--id", o.server_name, "name of the server in its metadata")->type_name("NAME");
}

/// Applies tritonserver's defaults, and checks its options.
void apply_triton_options(options& o, const triton_choices& t, const triton_command& command) {
  if (o.repository.empty()) fail("--model-repository: missing: expected a folder");
  if (!t.has_http) fail("--allow-http: got false, but this server answers over HTTP alone");
  if (t.cache && t.cache_bytes) fail("--response-cache-byte-size: not with --cache-config");
  if (t.cache_bytes) o.response_cache_bytes = *t.cache_bytes;
  if (t.cache) o.response_cache_bytes = cache_bytes(*t.cache);
  if (!o.pipeline.empty() && (o.exit_on_error || o.strict_readiness)) {
    fail(
        "--pipeline: only with --exit-on-error and --strict-readiness false, as it leaves out "
        "models that cannot be served");
  }
  if (!t.has_metrics) o.management_port.reset();
  o.has_metrics = t.has_metrics;
  o.has_triton_metrics = true;
  o.ready_without_models = true;
  serve::log_only(t.log);
  if (!command.ignored.empty()) {
    serve::log_line(serve::severity::info, serve::log_stream::err, "inference_server",
                    fmt::format("options without effect: {}", fmt::join(command.ignored, ", ")));
  }
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  const std::vector<std::string> given{argv + std::min(1, argc), argv + argc};
  const bool is_triton = std::ranges::count(given, "--triton-compatible") > 0;
  bool is_flag_set = false;
  triton_command command = is_triton ? from_triton(given) : triton_command{given};
  given_as() = command.given_as;
  o.exit_on_error = o.strict_readiness = is_triton;
  CLI::App app{
      "Serve models over HTTP with the Open Inference Protocol v2, in batches that meet an SLO.\n"
      "Without options it serves three small models, on a GPU if there is one.",
      "inference_server"};
  app.formatter(std::make_shared<registry::help_format>());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", std::string{"inference_server "} + version_string,
                       "print the version");
  app.option_defaults()->always_capture_default();
  std::vector<std::string> slos;
  std::vector<std::string> weights;
  std::string cache;
  std::string refuse_early = "on";
  std::string control = "on";
  std::string shared_memory = "off";
  std::string policy = o.policy.name;
  std::string mode = "explicit";
  double poll_s = 15;
  std::vector<std::string> load_models;
  triton_choices triton;
  registry::policy_options how;
  double lame_duck_ms = -1;
  std::size_t response_cache_mib = 0;
  const auto option = [&app](const char* name, auto& into, const char* type,
                             const std::string& what) {
    return app.add_option(name, into, what)->type_name(type);
  };
  using registry::heading;
  heading(app, "Models");
  option("--models", o.models, "NAME,...", "models to serve (default: all)")->delimiter(',');
  option(
      "--repository", o.repository, "DIR",
      "serve the ONNX models of this folder instead, in Triton's layout: NAME/config.pbtxt and "
      "NAME/1/model.onnx; clients may load and unload them with a token, or from this machine on "
      "the management port");
  option("--onnx-library", o.onnx_library, "FILE",
         "ONNX Runtime, libonnxruntime.so.1, for --repository (default: $COHORT_ONNXRUNTIME, or "
         "where the system finds it)");
  option("--model-memory-mb", o.model_memory_mb, "MB",
         "memory for models and batches of --repository, in MB (10^6 bytes)")
      ->check(within(16, 1 << 20));
  option("--response-cache-mib", response_cache_mib, "MIB",
         "memory for answers that are kept for equal requests, of models of --repository with "
         "response_cache in their config.pbtxt, in MiB; 0 keeps none")
      ->check(within(0, 1 << 24));
  option("--load-timeout-s", o.load_timeout_s, "S",
         "time after which a load of a model of --repository is abandoned, in seconds; 0: no limit")
      ->check(within(0, 86400.0));
  app.add_flag("--ready-without-models", o.ready_without_models,
               "tell probes that the server is ready though it serves no model of --repository");
  option("--model-control-mode", mode, "MODE",
         "changes of the models of --repository: none, explicit by calls of clients, or poll to "
         "follow the folder")
      ->check(one_of({"none", "explicit", "poll"}));
  option("--repository-poll-s", poll_s, "S",
         "time between two looks at the folder with --model-control-mode poll, in seconds")
      ->check(within(0.01, 86400.0));
  option("--load-model", load_models, "NAME",
         "model of --repository to load at the start; repeatable, * loads all (default: all)");
  option("--weights", weights, "MODEL=FILE.safetensors",
         "read weights of a model; repeatable (default: generated)");
  option("--seed", o.seed, "N", "seed of generated weights")->check(within(0, 9e18));
  option("--slo-ms", slos, "MODEL=MS",
         "SLO of a model, in milliseconds; repeatable (default: no request is given up)");
  option("--max-batch", o.max_batch, "N", "largest batch")->check(within(1, 256));
  heading(app, "Devices");
  option("--executor", o.executor, "E",
         "device to run models on; with --repository only cuda (ONNX Runtime's provider) is a GPU" +
             executor_names().help())
      ->check(one_of(executor_names().forms()));
  option("--devices", o.devices, "N",
         "number of devices; more than one on a GPU are partitions of it (default 0: one less than "
         "the cores; 1 on a GPU; 8 emulated)")
      ->check(within(0, 4096));
  option("--zoo", o.zoo, "ZOO", "table of models for --executor emulated: a100 or 1080ti")
      ->check(one_of({"a100", "1080ti"}));
  option("--reality", o.reality, "FILE",
         "read noise and faults of the devices for --executor emulated (JSON)");
  heading(app, "Latencies and plans");
  option("--profile", o.profile_dir, "DIR",
         "folder of `cohort profile` with latency.csv (default: measured at the start)");
  option("--profile-margin", o.profile_margin, "X",
         "factor on measured latencies, for other work on this machine")
      ->check(within(1.0, 10.0));
  option(
      "--cache", cache, "DIR|off",
      "folder that keeps profiles and adaptive's settings for the next start (default: cohort in "
      "$XDG_CACHE_HOME or ~/.cache)");
  option("--plan", o.plan, "FILE",
         "place models on parts of devices as `cohort pack --json` printed for --profile (default: "
         "every model on every device)");
  option("--replan-period-s", o.replan_period_s, "S",
         "time between two plans for the load with --plan, in seconds (default: the plan stays)")
      ->check(within(0.1, 86400.0));
  option("--warm-up-timeout-s", o.warm_up_timeout_s, "S",
         "time after which a model's first run on a part of a device counts as hung with --plan, "
         "in seconds")
      ->check(within(0.1, 3600.0));
  option("--pipeline", o.pipeline, "FILE|auto",
         "run models in stages, between which requests join and leave: stages.json, or auto to cut "
         "and measure them at the start (default: whole batches)");
  option("--pipeline-entries", o.pipeline_entries, "N",
         "batches at one time in the pipelines of a device with --pipeline")
      ->check(within(1, 16));
  heading(app, "Scheduling");
  option("--policy", policy, "P", "scheduling policy" + registry::policy_names().help());
  option("--queue-capacity", o.queue_capacity, "N",
         "largest number of waiting requests of one model; more are refused")
      ->check(within(1, 1 << 20));
  option("--refuse-early", refuse_early, "on|off",
         "refuse a request on arrival if its model is overloaded and it would be late")
      ->check(one_of({"on", "off"}));
  option("--max-rows", o.max_rows, "N", "largest number of rows in one request")
      ->check(within(1, 4096));
  option("--wake-margin-us", o.wake_margin_us, "US",
         "lead for timers that fire late, in microseconds; below 0 it is measured at the start")
      ->check(within(-1, 1e6));
  option("--http-margin-us", o.http_margin_us, "US",
         "part of each SLO for HTTP, in microseconds; at most a tenth of the SLO")
      ->check(within(0, 1e6));
  registry::add_tuning_options(app, how);
  const registry::health_choices health{app, o.health, "a batch", "batches"};
  option("--retries", o.health.retries, "N", "retries of the requests of a failed batch")
      ->check(within(0, 255));
  registry::add_http_options(app, o, o.request_memory_mib);
  registry::add_key_options(app, o.api_keys, o.api_key_file);
  option("--control", control, "on|off",
         "calls that load and unload models: on takes them with a token, or, without "
         "--control-token-file, from this machine on the management port")
      ->check(one_of({"on", "off"}));
  option("--control-token-file", o.control_token_file, "FILE",
         "file of tokens that clients need to load and unload models, on any port, in the form of "
         "--api-key-file, with no key of it; SIGHUP reads it again (default: none)");
  option("--shared-memory", shared_memory, "on|off",
         "let programs on this machine register POSIX shared memory, which the server then reads "
         "and writes for their requests")
      ->check(one_of({"on", "off"}));
  registry::add_life_options(app, o, lame_duck_ms);
  app.add_flag("--triton-metrics", o.has_triton_metrics,
               "add Triton's metrics nv_inference_... to the page of metrics");
  app.add_flag("--triton-compatible", is_flag_set,
               "take the options of tritonserver, with its defaults: docs/migrate.md lists them");
  if (is_triton) add_triton_options(app, o, triton);
  app.footer("Example: inference_server --port 8000 --policy adaptive --slo-ms lenet=20");
  try {
    std::ranges::reverse(command.arguments);  // CLI11 expects them in reverse.
    app.parse(command.arguments);
  } catch (const CLI::Success& e) {
    std::exit(app.exit(e));
  } catch (const CLI::ParseError& e) {
    fail(registry::reason(app, e));
  }
  if (is_flag_set != is_triton) fail("--triton-compatible: got a value, expected none");
  try {
    const auto chosen = registry::parse_policies(policy, how);
    if (chosen.size() != 1) {
      fail(fmt::format("--policy: got \"{}\", expected one policy", policy));
    }
    o.policy = chosen.front();
  } catch (const formats::input_error& e) {
    fail(e.what());
  }
  pairs("--slo-ms", slos, [&](const std::string& model, const std::string& value) {
    if (o.slo_ms.contains(model)) fail(fmt::format("--slo-ms: {} is repeated", model));
    o.slo_ms[model] = number("--slo-ms", value, 0.001, 3.6e6);
  });
  pairs("--weights", weights, [&](const std::string& model, const std::string& value) {
    if (!o.weights.emplace(model, value).second) {
      fail(fmt::format("--weights: {} is repeated", model));
    }
  });
  for (const std::string& model : o.models) {
    if (std::ranges::count(o.models, model) > 1) {
      fail(fmt::format("--models: {} is repeated", model));
    }
  }
  if (app.count("--pipeline") > 0 && o.pipeline.empty()) {
    fail("--pipeline: got an empty name, expected auto or a file");
  }
  o.refusals.is_on = refuse_early == "on";
  o.has_control = control == "on" && mode == "explicit";
  o.has_shared_memory = shared_memory == "on";
  for (const auto& [name, file] : {std::pair{"--api-key-file", &o.api_key_file},
                                   std::pair{"--control-token-file", &o.control_token_file}}) {
    if (app.count(name) > 0 && file->empty()) {
      fail(fmt::format("{}: got an empty name, expected a file", name));
    }
  }
  if (!o.has_control && !o.control_token_file.empty()) {
    fail(control == "off" ? "--control-token-file: not with --control off"
                          : "--control-token-file: only with --model-control-mode explicit");
  }
  if (mode != "explicit" && control == "on" && app.count("--control") > 0) {
    fail(fmt::format("--control: got on, but clients load no models with --model-control-mode {}",
                     mode));
  }
  if (mode == "poll") o.repository_poll_s = poll_s;
  if (mode != "poll" && app.count("--repository-poll-s") > 0 && !is_triton) {
    fail("--repository-poll-s: only with --model-control-mode poll");
  }
  if (mode != "explicit" && !load_models.empty()) {
    fail("--load-model: only with --model-control-mode explicit");
  }
  // In this mode tritonserver loads no models except those named.
  if ((is_triton && mode == "explicit") || !load_models.empty()) {
    std::ranges::sort(load_models);
    load_models.erase(std::ranges::unique(load_models).begin(), load_models.end());
    if (std::ranges::count(load_models, "*") == 0) o.load_models = load_models;
  }
  if (const bool is_fixed = app.count("--plan") > 0 || app.count("--pipeline") > 0; is_fixed) {
    if (mode == "poll" || !load_models.empty()) {
      fail(fmt::format("{}: not with --plan or --pipeline, whose models stay",
                       mode == "poll" ? "--model-control-mode" : "--load-model"));
    }
  }
  o.response_cache_bytes = response_cache_mib << 20U;
  if (is_triton) apply_triton_options(o, triton, command);
  try {
    health.apply();
  } catch (const config_error& e) {
    fail(e.what());
  }
  o.has_settings = app.count("--window") > 0 || app.count("--quantile") > 0;
  o.cache_dir = cache_folder(app.count("--cache") > 0 ? &cache : nullptr);
  if (app.count("--pipeline-entries") > 0 && o.pipeline.empty()) {
    fail("--pipeline-entries: only with --pipeline");
  }
  if (app.count("--replan-period-s") > 0 && o.plan.empty()) {
    fail("--replan-period-s: only with --plan");
  }
  if (app.count("--warm-up-timeout-s") > 0 && o.plan.empty()) {
    fail("--warm-up-timeout-s: only with --plan");
  }
  if (app.count("--repository") > 0) {
    if (o.repository.empty()) fail("--repository: got an empty name, expected a folder");
    if (o.executor == "emulated") {
      fail("--repository: not with --executor emulated: expected auto, host or cuda");
    }
    for (const char* other : {"--weights", "--seed", "--slo-ms", "--max-batch"}) {
      if (app.count(other) > 0) {
        fail(fmt::format("{}: not with --repository, whose models and config.pbtxt set it", other));
      }
    }
  }
  for (const char* onnx :
       {"--onnx-library", "--model-memory-mb", "--response-cache-mib", "--load-timeout-s",
        "--ready-without-models", "--model-control-mode", "--load-model"}) {
    if (app.count(onnx) > 0 && o.repository.empty()) {
      fail(fmt::format("{}: only with --repository", onnx));
    }
  }
  if (lame_duck_ms > o.drain_timeout_s * 1e3) {
    fail(fmt::format("--lame-duck-ms: got {}, expected at most {}, the --drain-timeout-s",
                     lame_duck_ms, o.drain_timeout_s * 1e3));
  }
  o.lame_duck_s = lame_duck_ms < 0 ? std::min(1.0, o.drain_timeout_s / 4) : lame_duck_ms / 1e3;
  o.has_max_batch = app.count("--max-batch") > 0;
  o.has_body_limit = app.count("--body-limit") > 0;
  if (app.count("--plan") > 0) {
    if (o.plan.empty()) fail("--plan: got an empty name, expected a file");
    if (o.profile_dir.empty())
      fail("--plan: only with --profile, the folder that the plan was made for");
    for (const char* other : {"--models", "--devices", "--slo-ms", "--pipeline", "--zoo"}) {
      if (app.count(other) > 0) fail(fmt::format("{}: not with --plan, which sets it", other));
    }
    for (const char* other : {"--tune", "--objective", "--fairness"}) {
      if (app.count(other) > 0) {
        fail(fmt::format("{}: not with --plan, which keeps the settings", other));
      }
    }
  }
  for (const char* emulated : {"--zoo", "--reality"}) {
    if (app.count(emulated) > 0 && o.executor != "emulated") {
      fail(fmt::format("{}: only with --executor emulated", emulated));
    }
  }
  return o;
}

}  // namespace cohort::inference
