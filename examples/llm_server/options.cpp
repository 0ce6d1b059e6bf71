// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <cohort/core/version.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <llama/make_generator.hpp>
#include <registry/decoder_executors.hpp>
#include <registry/number_option.hpp>

namespace cohort::chat {
namespace {

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
      "Serves a Llama with the protocol of OpenAI, batched by cohort, on the host or a GPU.\n"
      "With no options it serves a small model with random weights, over bytes.",
      "llm_server"};
  app.set_version_flag("--version", std::string{"llm_server "} + version_string);
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
  app.add_option("--model", o.model, "A Hugging Face directory [random weights]");
  app.add_option("--random", o.random, "Size of random weights")
      ->check(CLI::IsMember({"tiny", "small", "medium", "large"}));
  app.add_option("--weights-seed", o.weights_seed, "Of random weights")->check(within(0, 9e18));
  app.add_option("--served-model-name", o.name, "What clients call it [by directory or size]");
  app.add_option("--chat-template", o.chat_template,
                 "auto: as the directory says; plain, chatml, llama2, llama3, llama3.1, zephyr")
      ->check(CLI::IsMember({"auto", "plain", "chatml", "llama2", "llama3", "llama3.1", "zephyr"}));
  app.add_option("--host", o.http.host, "Address to listen on");
  app.add_option("--port", o.http.port, "Port to listen on; 0: any free one")
      ->check(within(0, 65535));
  app.add_option("--api-key", o.api_keys, "A key that clients may use, repeatable [none needed]")
      ->envname("COHORT_API_KEY");
  const registry::name_list executors = registry::decoder_executors.list();
  app.add_option("--executor", o.executor, "Where it computes:\n" + executors.help())
      ->check(CLI::IsMember(executors.forms()));
  app.add_option("--dtype", type, "Of weights, keys and values on a GPU: bf16, f16, f32")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  app.add_option("--device", o.gpu.device, "Which GPU")->check(within(0, 1023));
  app.add_option("--slots", g.slots, "Texts in the decode batch")->check(within(1, 1024));
  app.add_option("--kv-mib", o.memory.kv_mib,
                 fmt::format("Memory for keys and values of the batch [512, or as a text of {} "
                             "tokens needs]",
                             usual_context))
      ->check(within(1, 1 << 24));
  app.add_option("--staging-mib", o.memory.staging_mib,
                 "Memory for those of prompts and preempted texts [512, or as --kv-mib needs]")
      ->check(within(1, 1 << 24));
  app.add_option("--prefix-mib", prefix_mib, "Memory for prompts kept for equal ones; 0: none are")
      ->check(within(0, 1 << 24));
  app.add_option("--prefill-chunk", g.prefill_chunk,
                 "Prompt tokens computed at once [512 on a GPU]")
      ->check(within(1, 1 << 16));
  app.add_option(
         "--max-prefilling", g.max_prefilling,
         "Without --ttft-slo-ms: prompts computed in turn, and as many short ones beside them")
      ->check(within(1, 1024));
  app.add_option(
         "--ttft-slo-ms", ttft_ms,
         "Longest time to the first token, a promise: who cannot have it is refused; 0: no limit")
      ->check(within(0, 1e9));
  app.add_option("--inter-token-slo-ms", inter_token_ms,
                 "Longest time between tokens: prompts await a slot; 0: no limit")
      ->check(within(0, 1e9));
  app.add_option("--max-waiting", o.service.max_waiting, "Texts that may wait for a slot")
      ->check(within(1, 1 << 20));
  app.add_option("--max-choices", o.max_choices, "Most texts of one request")
      ->check(within(1, 1 << 16));
  app.add_option("--body-limit", o.http.body_limit, "Most bytes of a request's body")
      ->check(within(1024, 1 << 30));
  app.add_option(
         "--request-memory-mib", request_memory_mib,
         "Memory that requests and their answers may hold in all; 0: a quarter of what this "
         "process may have")
      ->check(within(0, 1 << 24));
  app.add_option("--read-timeout-s", o.http.read_timeout_s, "For a client to send a request")
      ->check(within(0.1, 3600.0));
  app.add_option("--write-timeout-s", o.http.write_timeout_s, "For a client to take an answer")
      ->check(within(0.1, 3600.0));
  app.add_option("--drain-timeout-s", o.life.drain_timeout_s,
                 "From SIGTERM to the last text; the process ends within a second of it")
      ->check(within(0.1, 3600.0));
  app.add_option("--lame-duck-ms", lame_duck_ms,
                 "The first part of it: not ready any more, but still serving "
                 "[1000, or a quarter of it]")
      ->check(within(0, 3.6e6));
  app.add_option("--management-port", o.life.management_port,
                 "Port for live, ready and metrics alone; 0: any free one [they are on --port]")
      ->check(within(0, 65535));
  const registry::health_choices health{app, o.service.watch.health,
                                        "an iteration or a job of prompts",
                                        "iterations and jobs of prompts"};
  app.add_option(
         "--first-hang-s", first_hang_s,
         "The same for the first of each, of which nothing is known: it hangs after so long")
      ->check(within(0.001, 3600.0));
  app.add_option("--hang-timeout-s", hang_timeout_s,
                 "Texts that a device has end when it has hung for so long; others at once")
      ->check(within(0.001, 86400.0));
  app.add_option("--max-connections", o.http.max_connections, "Connections at one time")
      ->check(within(1, 1 << 16));
  app.footer("Example:\n  llm_server --model /models/llama --port 8000 --slots 16\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::exit(app.exit(e));
  } catch (const CLI::ParseError& e) {
    fail(e.what());
  }
  if (!o.model.empty() && app.count("--random") > 0) fail("--random: not with --model");
  for (const char* option : {"--dtype", "--device"}) {
    if (o.executor == "host" && app.count(option) > 0) {
      fail(fmt::format("{}: only with --executor cuda or auto; the host computes in f32", option));
    }
  }
  for (const runtime::data_type t :
       {runtime::data_type::f32, runtime::data_type::f16, runtime::data_type::bf16}) {
    if (type == llama::to_string(t)) o.gpu.type = t;
  }
  if (app.count("--prefill-chunk") > 0) o.gpu.prefill_chunk = g.prefill_chunk;
  for (const std::string& key : o.api_keys) {
    if (key.empty()) fail("--api-key: an empty key is not allowed");
  }
  if (lame_duck_ms > o.life.drain_timeout_s * 1e3) {
    fail(fmt::format("--lame-duck-ms: {} is not allowed: expected at most {}, --drain-timeout-s",
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
