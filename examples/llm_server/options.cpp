// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <cohort/core/version.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <llama/make_generator.hpp>
#include <memory>
#include <registry/decoder_executors.hpp>
#include <registry/number_option.hpp>
#include <registry/parse_errors.hpp>

namespace cohort::chat {
namespace {

using registry::one_of;
using registry::within;

[[noreturn]] void fail(std::string what) {
  std::ranges::replace(what, '\n', ' ');
  fmt::print(stderr, "llm_server: {}\n", what);
  std::exit(2);
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  CLI::App app{
      "Serve a Llama model with the OpenAI protocol, batched by cohort, on the host or a GPU.\n"
      "Without options it serves a small model with random weights, over bytes.",
      "llm_server"};
  app.formatter(std::make_shared<registry::help_format>());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", std::string{"llm_server "} + version_string,
                       "print the version");
  app.option_defaults()->always_capture_default();
  llama::generator_options& g = o.service.generator;
  std::uint64_t prefix_mib = g.prefix_bytes >> 20U;
  std::string type = "bf16";
  double ttft_ms = 0;
  double lame_duck_ms = -1;
  std::size_t request_memory_mib = 0;
  double inter_token_ms = 0;
  double first_hang_s = to_seconds(o.service.watch.first);
  double hang_timeout_s = to_seconds(o.service.watch.until_texts_end);
  const auto option = [&app](const char* name, auto& into, const char* kind,
                             const std::string& what) {
    return app.add_option(name, into, what)->type_name(kind);
  };
  using registry::heading;
  heading(app, "Model");
  option("--model", o.model, "DIR", "Hugging Face directory (default: random weights)");
  option("--random", o.random, "SIZE", "size of random weights: tiny, small, medium or large")
      ->check(one_of({"tiny", "small", "medium", "large"}));
  option("--weights-seed", o.weights_seed, "N", "seed of random weights")->check(within(0, 9e18));
  option("--served-model-name", o.name, "NAME",
         "name for clients (default: from the directory or size)");
  option("--chat-template", o.chat_template, "FORM",
         "chat format: plain, chatml, qwen3, llama2, llama3, llama3.1 or zephyr; auto takes the "
         "one of the directory")
      ->check(
          one_of({"auto", "plain", "chatml", "qwen3", "llama2", "llama3", "llama3.1", "zephyr"}));
  heading(app, "Device");
  const registry::name_list executors = registry::decoder_executors.list();
  option("--executor", o.executor, "E", "device to compute on" + executors.help())
      ->check(one_of(executors.forms()));
  option("--device", o.gpu.device, "N", "number of the GPU")->check(within(0, 1023));
  option("--dtype", type, "TYPE", "type of weights, keys and values on a GPU: bf16, f16 or f32")
      ->check(one_of({"bf16", "f16", "f32"}));
  heading(app, "Batch");
  option("--slots", g.slots, "N", "sequences in the decode batch")->check(within(1, 1024));
  option("--kv-mib", o.memory.kv_mib, "MIB",
         fmt::format("memory for keys and values of the batch, in MiB (default 512, or enough for "
                     "a sequence of {} tokens)",
                     usual_context))
      ->check(within(1, 1 << 24));
  option("--staging-mib", o.memory.staging_mib, "MIB",
         "memory for keys and values of prompts and preempted sequences, in MiB (default 512, or "
         "as --kv-mib needs)")
      ->check(within(1, 1 << 24));
  option("--prefix-mib", prefix_mib, "MIB",
         "memory to keep prompts for later equal ones, in MiB; 0 keeps none")
      ->check(within(0, 1 << 24));
  option(
      "--prefill-chunk", g.prefill_chunk, "N",
      fmt::format("prompt tokens to compute at once (default {}; 512 on a GPU)", g.prefill_chunk))
      ->check(within(1, 1 << 16));
  option("--max-prefilling", g.max_prefilling, "N",
         "prompts to compute in turn, plus as many short ones, without --ttft-slo-ms")
      ->check(within(1, 1024));
  heading(app, "Admission");
  option("--ttft-slo-ms", ttft_ms, "MS",
         "limit for the time to the first token, in milliseconds; a request that would miss it is "
         "refused; 0 sets none")
      ->check(within(0, 1e9));
  option("--inter-token-slo-ms", inter_token_ms, "MS",
         "limit for the time between tokens, in milliseconds; prompts wait for a slot to keep it; "
         "0 sets none")
      ->check(within(0, 1e9));
  option("--max-waiting", o.service.max_waiting, "N",
         "largest number of sequences that wait for a slot; more are refused")
      ->check(within(1, 1 << 20));
  option("--max-choices", o.max_choices, "N", "largest number of sequences of one request")
      ->check(within(1, 1 << 16));
  app.add_flag("--lenient", o.lenient,
               "ignore fields of requests that this server does not know; without it they are "
               "refused by name");
  const registry::health_choices health{
      app, o.service.watch.health, "an iteration or a prefill job", "iterations and prefill jobs"};
  option("--first-hang-s", first_hang_s, "S",
         "time after which the first iteration or prefill job counts as hung, in seconds")
      ->check(within(0.001, 3600.0));
  option("--hang-timeout-s", hang_timeout_s, "S",
         "time that sequences on a hung device wait for it before they end, in seconds; others end "
         "at once")
      ->check(within(0.001, 86400.0));
  registry::add_http_options(app, o.http, request_memory_mib);
  registry::add_key_options(app, o.api_keys, o.api_key_file);
  registry::add_life_options(app, o.life, lame_duck_ms);
  app.footer("Example: llm_server --model /models/llama --port 8000 --slots 16");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::exit(app.exit(e));
  } catch (const CLI::ParseError& e) {
    fail(registry::reason(app, e));
  }
  if (!o.model.empty() && app.count("--random") > 0) fail("--random: not with --model");
  for (const char* gpu_option : {"--dtype", "--device"}) {
    if (o.executor == "host" && app.count(gpu_option) > 0) {
      fail(fmt::format("{}: only with --executor cuda or auto; the host computes in f32",
                       gpu_option));
    }
  }
  for (const runtime::data_type t :
       {runtime::data_type::f32, runtime::data_type::f16, runtime::data_type::bf16}) {
    if (type == llama::to_string(t)) o.gpu.type = t;
  }
  if (app.count("--prefill-chunk") > 0) o.gpu.prefill_chunk = g.prefill_chunk;
  if (app.count("--api-key-file") > 0 && o.api_key_file.empty()) {
    fail("--api-key-file: got an empty name, expected a file");
  }
  if (lame_duck_ms > o.life.drain_timeout_s * 1e3) {
    fail(fmt::format("--lame-duck-ms: got {}, expected at most {}, the --drain-timeout-s",
                     lame_duck_ms, o.life.drain_timeout_s * 1e3));
  }
  o.life.lame_duck_s =
      lame_duck_ms < 0 ? std::min(1.0, o.life.drain_timeout_s / 4) : lame_duck_ms / 1e3;
  o.http.max_held_bytes = request_memory_mib << 20U;
  o.http.held_bytes_option = "--request-memory-mib";
  if (o.life.management_port) o.http.probe_connections = 0;
  health.apply();
  o.service.watch.first = from_seconds(first_hang_s);
  o.service.watch.until_texts_end = from_seconds(hang_timeout_s);
  g.prefix_bytes = prefix_mib << 20U;
  g.max_overtaking = g.max_prefilling;
  if (ttft_ms > 0) g.first_token = std::max(duration{1}, from_ms(ttft_ms));
  if (inter_token_ms > 0) g.between_tokens = std::max(duration{1}, from_ms(inter_token_ms));
  return o;
}

}  // namespace cohort::chat
