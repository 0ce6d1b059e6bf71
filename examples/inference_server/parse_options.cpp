// SPDX-License-Identifier: Apache-2.0
#include "parse_options.hpp"

#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <inference/model_service.hpp>
#include <inference/start_cache.hpp>
#include <registry/number_option.hpp>

namespace cohort::inference {
namespace {

using registry::within;

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "inference_server: {}\n", what);
  std::exit(2);
}

double number(const std::string& option, const std::string& text, double least, double most) {
  if (const std::string why = registry::objection(text, least, most); !why.empty()) {
    fail(fmt::format("{}: {}", option, why));
  }
  return std::strtod(text.c_str(), nullptr);
}

/// @param given The option's value; null: it was not given.
std::string cache_folder(const std::string* given) {
  if (given == nullptr) return default_cache_folder();
  if (*given == "off") return {};
  std::error_code ignored;
  if (given->empty() || (std::filesystem::exists(*given, ignored) &&
                         !std::filesystem::is_directory(*given, ignored))) {
    fail(fmt::format("--cache: \"{}\" is not allowed: expected off or a folder", *given));
  }
  return *given;
}

/// Splits each NAME=VALUE.
template <class Use>
void pairs(const std::string& option, const std::vector<std::string>& texts, Use use) {
  for (const std::string& t : texts) {
    const std::size_t at = t.find('=');
    if (at == 0 || at == std::string::npos) {
      fail(fmt::format("{}: {} is not allowed: expected MODEL=VALUE", option, t));
    }
    use(t.substr(0, at), t.substr(at + 1));
  }
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  CLI::App app{
      "Serves models over HTTP with the Open Inference Protocol v2, batched under an SLO.\n"
      "With no options it serves three small models, really computed, on a GPU if there is one.",
      "inference_server"};
  app.set_version_flag("--version", std::string{"inference_server "} + version_string);
  app.option_defaults()->always_capture_default();
  std::vector<std::string> slos;
  std::vector<std::string> weights;
  std::string cache;
  std::string refuse_early = "on";
  std::string policy = o.policy.name;
  registry::policy_options how;
  double lame_duck_ms = -1;
  app.add_option("--host", o.host, "Address to listen on");
  app.add_option("--port", o.port, "Port to listen on; 0: any free one")->check(within(0, 65535));
  app.add_option("--executor", o.executor, "Where models run:\n" + executor_names().help())
      ->check(CLI::IsMember(executor_names().forms()));
  app.add_option("--policy", policy, "When a batch is sent:\n" + registry::policy_names().help());
  app.add_option("--tune", how.tune,
                 "Whether adaptive tries other settings on what arrived of late, and adopts the "
                 "best: on or off [on]");
  app.add_option("--objective", how.objective,
                 "Of adaptive, where settings lose as few requests: least latency, or fewest "
                 "devices [latency]");
  app.add_option("--fairness", how.fairness,
                 "Of adaptive, what the worst model's share of bad requests counts for beside that "
                 "of all [0.2]");
  app.add_option("--window", how.window,
                 "Of adaptive, what it starts with, from early to late: eager, brief, patient, "
                 "reserved, frontrun or deferred [reserved]");
  app.add_option("--quantile", how.quantile,
                 "Of adaptive, the quantile of learned latencies that it starts with [0.9]");
  app.add_option(
         "--devices", o.devices,
         "Devices; 0: one less than the cores (cuda: 1, more are partitions of it; emulated: 8)")
      ->check(within(0, 4096));
  app.add_option("--models", o.models, "Models to serve [all]")->delimiter(',');
  app.add_option("--zoo", o.zoo, "With --executor emulated: whose profiles")
      ->check(CLI::IsMember({"a100", "1080ti"}));
  app.add_option("--reality", o.reality,
                 "With --executor emulated: noise and faults of the devices, JSON as the field "
                 "`reality` of a workload [none]");
  app.add_option("--profile", o.profile_dir,
                 "Folder with latency.csv as `cohort profile` writes it [measured at the start]");
  app.add_option("--repository", o.repository,
                 "Folder of ONNX models in Triton's layout, NAME/config.pbtxt and "
                 "NAME/1/model.onnx, loaded and unloaded by the protocol, too [built-in models]");
  app.add_option("--onnx-library", o.onnx_library,
                 "With --repository: libonnxruntime.so.1 [$COHORT_ONNXRUNTIME, or where the system "
                 "finds it]");
  app.add_option("--model-memory-mb", o.model_memory_mb,
                 "With --repository: memory for models and for the rows of their batches")
      ->check(within(16, 1 << 20));
  app.add_option("--plan", o.plan,
                 "Which model on which part of which device: what `cohort pack --json` printed "
                 "for --profile [every model on every device]");
  app.add_option("--replan-period-s", o.replan_period_s,
                 "With --plan: plan anew for the load, this often [the plan stays]")
      ->check(within(0.1, 86400.0));
  app.add_option("--warm-up-timeout-s", o.warm_up_timeout_s,
                 "With --plan: after so long a model's first run on a part of a device counts as "
                 "one that hangs")
      ->check(within(0.1, 3600.0));
  app.add_option("--profile-margin", o.profile_margin,
                 "Factor on measured latencies, for what else runs on the machine")
      ->check(within(1.0, 10.0));
  app.add_option("--cache", cache,
                 "Folder where profiles and settings of adaptive are kept for the next start, or "
                 "off [cohort in $XDG_CACHE_HOME or ~/.cache]");
  app.add_option("--pipeline", o.pipeline,
                 "Run models as pipelines of stages that requests enter and leave in between: "
                 "stages.json, or auto: cut by the slicer from a profile measured at the start "
                 "[batches run whole]");
  app.add_option("--pipeline-entries", o.pipeline_entries,
                 "With --pipeline: batches that may be in a device's pipelines at one time")
      ->check(within(1, 16));
  app.add_option("--slo-ms", slos, "MODEL=MS, repeatable [from the profiles]");
  app.add_option("--weights", weights, "MODEL=FILE.safetensors, repeatable [generated]");
  app.add_option("--seed", o.seed, "Of generated weights")->check(within(0, 9e18));
  app.add_option("--max-batch", o.max_batch, "Largest batch that is computed")
      ->check(within(1, 256));
  app.add_option("--queue-capacity", o.queue_capacity, "Requests of a model that may wait")
      ->check(within(1, 1 << 20));
  app.add_option("--refuse-early", refuse_early,
                 "Whether an overloaded model refuses what would be late at its arrival: on or off")
      ->check(CLI::IsMember({"on", "off"}));
  const registry::health_choices health{app, o.health, "a batch", "batches"};
  app.add_option("--retries", o.health.retries,
                 "How often requests of a batch that failed are tried again")
      ->check(within(0, 255));
  app.add_option("--max-rows", o.max_rows, "Most rows of one infer request")
      ->check(within(1, 4096));
  app.add_option("--wake-margin-us", o.wake_margin_us,
                 "How late timers fire, to be budgeted; below 0: measured at the start")
      ->check(within(-1, 1e6));
  app.add_option("--http-margin-us", o.http_margin_us,
                 "Kept of each SLO for HTTP and the way back; at most a tenth of the SLO")
      ->check(within(0, 1e6));
  app.add_option("--body-limit", o.body_limit, "Most bytes of a request's body")
      ->check(within(1024, 1 << 30));
  app.add_option(
         "--request-memory-mib", o.request_memory_mib,
         "Memory that requests and their answers may hold in all; 0: a quarter of what this "
         "process may have")
      ->check(within(0, 1 << 24));
  app.add_option("--read-timeout-s", o.read_timeout_s, "For a client to send a request")
      ->check(within(0.1, 3600.0));
  app.add_option("--drain-timeout-s", o.drain_timeout_s,
                 "From SIGTERM to the last answer; the process ends within a second of it")
      ->check(within(0.1, 3600.0));
  app.add_option("--lame-duck-ms", lame_duck_ms,
                 "The first part of it: not ready any more, but still serving "
                 "[1000, or a quarter of it]")
      ->check(within(0, 3.6e6));
  app.add_option("--management-port", o.management_port,
                 "Port for live, ready and metrics alone; 0: any free one [they are on --port]")
      ->check(within(0, 65535));
  app.add_option("--max-connections", o.max_connections, "Connections at one time")
      ->check(within(1, 1 << 16));
  app.footer("Example:\n  inference_server --port 8000 --policy adaptive --slo-ms lenet=20\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::exit(app.exit(e));
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();
    for (char& c : what) {
      if (c == '\n') c = ' ';
    }
    fail(what);
  }
  try {
    const auto chosen = registry::parse_policies(policy, how);
    if (chosen.size() != 1) {
      fail(fmt::format("--policy: '{}' is not allowed: expected one policy", policy));
    }
    o.policy = chosen.front();
  } catch (const formats::input_error& e) {
    fail(e.what());
  }
  pairs("--slo-ms", slos, [&](const std::string& model, const std::string& value) {
    if (o.slo_ms.contains(model)) fail(fmt::format("--slo-ms: {} is given twice", model));
    o.slo_ms[model] = number("--slo-ms", value, 0.001, 3.6e6);
  });
  pairs("--weights", weights, [&](const std::string& model, const std::string& value) {
    if (!o.weights.emplace(model, value).second) {
      fail(fmt::format("--weights: {} is given twice", model));
    }
  });
  for (const std::string& model : o.models) {
    if (std::ranges::count(o.models, model) > 1) {
      fail(fmt::format("--models: {} is given twice", model));
    }
  }
  if (app.count("--pipeline") > 0 && o.pipeline.empty()) {
    fail("--pipeline: an empty name is not allowed: expected auto or a file");
  }
  o.refusals.is_on = refuse_early == "on";
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
    if (o.repository.empty()) fail("--repository: an empty name is not allowed: expected a folder");
    if (o.executor != "host" && o.executor != "auto") {
      fail(fmt::format("--repository: not with --executor {}: expected host", o.executor));
    }
    for (const char* other : {"--weights", "--seed", "--slo-ms", "--max-batch"}) {
      if (app.count(other) > 0) {
        fail(fmt::format("{}: not with --repository: models and config.pbtxt say it", other));
      }
    }
  }
  for (const char* onnx : {"--onnx-library", "--model-memory-mb"}) {
    if (app.count(onnx) > 0 && o.repository.empty()) {
      fail(fmt::format("{}: only with --repository", onnx));
    }
  }
  if (lame_duck_ms > o.drain_timeout_s * 1e3) {
    fail(fmt::format("--lame-duck-ms: {} is not allowed: expected at most {}, --drain-timeout-s",
                     lame_duck_ms, o.drain_timeout_s * 1e3));
  }
  o.lame_duck_s = lame_duck_ms < 0 ? std::min(1.0, o.drain_timeout_s / 4) : lame_duck_ms / 1e3;
  o.has_max_batch = app.count("--max-batch") > 0;
  if (app.count("--plan") > 0) {
    if (o.plan.empty()) fail("--plan: an empty name is not allowed: expected a file");
    if (o.profile_dir.empty()) fail("--plan: only with --profile, the folder it was made for");
    for (const char* other : {"--models", "--devices", "--slo-ms", "--pipeline", "--zoo"}) {
      if (app.count(other) > 0) fail(fmt::format("{}: not with --plan, which says it", other));
    }
    for (const char* other : {"--tune", "--objective", "--fairness"}) {
      if (app.count(other) > 0) {
        fail(fmt::format("{}: not with --plan, under which settings stay as they are", other));
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
