// SPDX-License-Identifier: Apache-2.0
// Generates text with a Llama model on the host or a GPU, batched by cohort, and compares the cost
// of other batching methods.
#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <llama/compare.hpp>
#include <llama/generation.hpp>
#include <llama/llama.hpp>
#include <llama/make_generator.hpp>
#include <llama/sentence_pieces.hpp>
#include <llama/tokenizer.hpp>
#include <llama/weights.hpp>
#include <registry/decoder_executors.hpp>
#include <registry/number_option.hpp>
#include <registry/parse_errors.hpp>

namespace cohort::llama {
namespace {

struct model_options {
  std::string directory;
  std::string random = "tiny";
  std::uint64_t seed = 1;
};

const std::vector<std::string> sizes{"tiny", "small", "medium", "large"};

void add_model(CLI::App* sub, model_options& o) {
  registry::heading(*sub, "Model");
  sub->add_option("--model", o.directory, "Hugging Face directory (default: random weights)")
      ->type_name("DIR");
  sub->add_option("--random", o.random, "size of random weights: tiny, small, medium or large")
      ->type_name("SIZE")
      ->check(registry::one_of(sizes));
  sub->add_option("--weights-seed", o.seed, "seed of random weights")
      ->type_name("N")
      ->check(registry::within(0, 9e18));
}

llama_weights open_weights(const model_options& o) {
  return o.directory.empty() ? random_weights(named_config(o.random), o.seed)
                             : load_weights(o.directory);
}

tokenizer open_tokenizer(const model_options& o) {
  if (o.directory.empty()) return tokenizer::bytes();
  return tokenizer::open(o.directory);
}

time_point now() {
  return time_point{
      std::chrono::duration_cast<duration>(std::chrono::steady_clock::now().time_since_epoch())};
}

struct generate_options {
  model_options model;
  std::vector<std::string> prompts;
  std::vector<std::string> stops;
  std::uint32_t slots = 8;
  std::uint32_t max_tokens = 64;
  sampling how;
  std::string executor = "host";
  gpu_options gpu;
};

int generate_with(text_generator& g, const llama_config& c, const generate_options& o) {
  const tokenizer words = open_tokenizer(o.model);
  expects(words.size() <= c.vocabulary, "the tokenizer has tokens that the model does not");
  struct asked : generation {
    token_reader reader;
    stop_matcher stops;
    std::string said;
  };
  std::deque<asked> all;
  for (std::size_t i = 0; i < o.prompts.size(); ++i) {
    asked& a = all.emplace_back();
    a.id = request_id{i};
    a.text = words.encode(o.prompts[i]);
    if (a.text.empty()) a.text = {c.begin_token >= 0 ? c.begin_token : 0};
    a.max_new = o.max_tokens;
    a.how = o.how;
    a.how.seed += i;
    a.stop_tokens = c.end_tokens;
    a.reader = token_reader{words, a.text};
    a.stops = stop_matcher{o.stops};
    a.on_token = [](generation& self, const sampled& s) {
      auto& sequence = static_cast<asked&>(self);
      sequence.said += sequence.stops.push(sequence.reader.next(s.chosen.token));
      return sequence.stops.is_stopped();
    };
    if (g.submit(a)) {
      throw config_error{fmt::format("prompt {}: {} tokens and {} more do not fit", i + 1,
                                     a.text.size(), a.max_new)};
    }
  }
  while (g.turn(now)) {
  }
  for (asked& a : all) {
    if (!a.stops.is_stopped()) a.said += a.stops.finish();
    fmt::print("[{}] {} tokens, {}\n{}\n", a.id.value(), a.produced.size(),
               kv::to_string(*a.finished), a.said);
  }
  return 0;
}

int generate(const generate_options& o) {
  const chosen_executor on = registry::choose_executor(o.executor, o.gpu);
  if (o.executor == "auto") fmt::print(stderr, "cohort-llm: on the {}\n", on.description);
  llama_weights weights = open_weights(o.model);
  const llama_config c = weights.config;
  const auto g = make_generator(std::move(weights), {.slots = o.slots}, on);
  return generate_with(*g, c, o);
}

struct make_options {
  model_options model;
  std::string to;
  std::size_t shards = 1;
  std::string words = "bytes";
};

int make_model(const make_options& o) {
  llama_config c = named_config(o.model.random);
  std::string pieces;
  if (o.words == "pieces") {
    pieces = small_pieces_model();
    c.vocabulary = tokenizer::parse_pieces(pieces, "tokenizer.model").size();
    c.begin_token = 1;
    c.end_tokens = {2};
  }
  std::filesystem::create_directories(o.to);
  save_weights(random_weights(c, o.model.seed), o.to, o.shards);
  if (pieces.empty()) {
    write_text(o.to + "/tokenizer.json", tokenizer::bytes_json());
  } else {
    write_text(o.to + "/tokenizer.model", pieces);
  }
  return 0;
}

struct compare_command_options {
  model_options model;
  int set = 1;
  double scale = 0.1;
  double rate = 0;
  std::uint32_t slots = 8;
  std::uint32_t chunk = 32;
  std::uint64_t seed = 1;
};

int compare_all(const compare_command_options& o) {
  llama_weights weights = open_weights(o.model);
  std::vector<timed_request> requests = paper_requests(o.set, o.scale, weights.config, o.seed);
  // Other positions are never computed, whatever maximum the model states.
  weights.config.max_positions = std::min(weights.config.max_positions, positions_of(requests));
  const llama model{std::move(weights)};
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (o.rate > 0) requests[i].arrival_s = static_cast<double>(i) / o.rate;
    tokens += requests[i].output;
  }
  fmt::print("{} requests, {} tokens to produce, {} slots, {:.1f} M parameters\n\n",
             requests.size(), tokens, o.slots,
             static_cast<double>(model.config().parameters()) / 1e6);
  fmt::print("{:<22}{:>9}{:>9}{:>9}{:>11}{:>12}{:>12}{:>12}{:>12}{:>12}  {}\n", "method", "s",
             "cpu s", "tokens/s", "iterations", "ttft p50", "ttft p99", "gap p50", "gap p99",
             "run p99", "tokens");
  const auto at = [](std::vector<double> v, double q) {
    if (v.empty()) return 0.0;
    std::ranges::sort(v);
    return v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
  };
  std::vector<std::vector<kv::token_id>> truth;
  struct row {
    const char* name;
    sim::decode_method method;
    bool own;
  };
  for (const row& r : {row{"run-to-completion", sim::decode_method::run_to_completion, false},
                       row{"pd", sim::decode_method::pd, false},
                       row{"shaping", sim::decode_method::shaping, false},
                       row{"orca", sim::decode_method::orca, false},
                       row{"baton, one thread", sim::decode_method::baton, false},
                       row{"baton", sim::decode_method::baton, true}}) {
    const compare_result c = compare(model, requests,
                                     {.method = r.method,
                                      .slots = o.slots,
                                      .own_prefill_stream = r.own,
                                      .prefill_chunk = o.chunk});
    if (truth.empty()) truth = c.tokens;
    fmt::print(
        "{:<22}{:>9.3f}{:>9.3f}{:>9.1f}{:>11}{:>9.2f} ms{:>9.2f} ms{:>9.2f} ms{:>9.2f} ms{:>9.2f} "
        "ms  {}\n",
        r.name, c.seconds, c.cpu_seconds, static_cast<double>(tokens) / c.seconds, c.iterations,
        at(c.first_token_ms, 0.5), at(c.first_token_ms, 0.99), at(c.between_tokens_ms, 0.5),
        at(c.between_tokens_ms, 0.99), at(c.running_gaps_ms, 0.99),
        c.tokens == truth ? "same" : "DIFFERENT");
    std::fflush(stdout);
  }
  return 0;
}

int run(int argc, char** argv) {
  using registry::one_of;
  using registry::within;
  CLI::App app{"Generate text with a Llama model, batched by cohort, or compare ways to batch."};
  app.name("cohort-llm");
  app.formatter(std::make_shared<registry::help_format>());
  app.set_help_flag("-h,--help", "print this help; after SUBCOMMAND, its options");
  app.set_version_flag("--version", fmt::format("cohort-llm {}", version_string),
                       "print the version");
  app.option_defaults()->always_capture_default();
  app.footer("Example: cohort-llm generate --max-tokens 16 Hello");
  app.require_subcommand(0, 1);
  const auto option = [](CLI::App* sub, const char* name, auto& into, const char* type,
                         const std::string& what) {
    return sub->add_option(name, into, what)->type_name(type);
  };
  const auto command = [&](const char* name, const char* what, const char* example) {
    CLI::App* sub = app.add_subcommand(name, what)->group("Commands");
    sub->footer(fmt::format("Example: cohort-llm {}", example));
    return sub;
  };
  using registry::heading;

  generate_options g;
  CLI::App* generating = command("generate", "Continue prompts, all in one batch.",
                                 "generate --max-tokens 16 --temperature 0.8 Hello \"Good day\"");
  option(generating, "prompt", g.prompts, "TEXT", "prompts to continue")->required();
  add_model(generating, g.model);
  heading(*generating, "Sampling");
  option(generating, "--max-tokens", g.max_tokens, "N", "tokens to produce per prompt")
      ->check(within(1, 1 << 20));
  option(generating, "--temperature", g.how.temperature, "X",
         "temperature; 0 takes the most likely token")
      ->check(within(0, 100));
  option(generating, "--top-k", g.how.top_k, "K",
         "number of likeliest tokens to draw from; 0 takes all")
      ->check(within(0, 4294967295.0));
  option(generating, "--top-p", g.how.top_p, "P",
         "total probability of the likeliest tokens to draw from")
      ->check(within(0, 1));
  option(generating, "--seed", g.how.seed, "N", "seed of the draws")->check(within(0, 9e18));
  option(generating, "--stop", g.stops, "TEXT", "end a sequence at this string; repeatable")
      ->allow_extra_args(false);
  heading(*generating, "Device");
  option(generating, "--slots", g.slots, "N", "sequences in the batch")->check(within(1, 1024));
  const registry::name_list executors = registry::decoder_executors.list();
  option(generating, "--executor", g.executor, "E", "device to compute on" + executors.help())
      ->check(one_of(executors.forms()));
  std::string type = "bf16";
  option(generating, "--dtype,--type", type, "TYPE",
         "type of weights, keys and values on a GPU: bf16, f16 or f32")
      ->check(one_of({"bf16", "f16", "f32"}));
  option(generating, "--device", g.gpu.device, "N", "number of the GPU")->check(within(0, 1023));

  make_options make;
  CLI::App* making = command("make-model", "Write a model directory with random weights.",
                             "make-model tiny-llama");
  option(making, "directory", make.to, "DIR", "directory to write to")->required();
  heading(*making, "Model");
  option(making, "--size", make.model.random, "SIZE", "size: tiny, small, medium or large")
      ->check(one_of(sizes));
  option(making, "--seed", make.model.seed, "N", "seed of the weights")->check(within(0, 9e18));
  option(making, "--shards", make.shards, "N", "number of weight files")->check(within(1, 1000));
  option(making, "--tokenizer", make.words, "KIND",
         "tokenizer to write\n\tbytes\ttokenizer.json over bytes\n"
         "\tpieces\ta SentencePiece tokenizer.model")
      ->check(one_of({"bytes", "pieces"}));

  compare_command_options c;
  CLI::App* comparing =
      command("compare", "Run the Baton paper's requests by every method, in wall time.",
              "compare --set 2 --rate 50");
  add_model(comparing, c.model);
  heading(*comparing, "Requests");
  option(comparing, "--set", c.set, "N",
         "request set\n\t1\t120 requests, long and short\n\t2\t30 short requests")
      ->check(within(1, 2));
  option(comparing, "--scale", c.scale, "X", "factor on the paper's lengths")
      ->check(within(0.001, 10));
  option(comparing, "--rate", c.rate, "RPS",
         "arrival rate, in requests per second; 0 sends all at once")
      ->check(within(0, 1e9));
  option(comparing, "--seed", c.seed, "N", "seed of the requests")->check(within(0, 9e18));
  heading(*comparing, "Batch");
  option(comparing, "--slots", c.slots, "N", "sequences in the batch")->check(within(1, 1024));
  option(comparing, "--chunk", c.chunk, "N", "prompt tokens in a piece of prefill")
      ->check(within(1, 4096));

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw config_error{registry::reason(app, e)};
  }
  if (app.get_subcommands().empty()) {
    fmt::print(stderr, "{}", app.help());
    return 2;
  }
  for (const runtime::data_type t : {runtime::data_type::f32, runtime::data_type::f16}) {
    if (type == to_string(t)) g.gpu.type = t;
  }
  if (generating->parsed()) return generate(g);
  if (making->parsed()) return make_model(make);
  return compare_all(c);
}

}  // namespace
}  // namespace cohort::llama

int main(int argc, char** argv) {
  try {
    return cohort::llama::run(argc, argv);
  } catch (const cohort::config_error& e) {
    fmt::print(stderr, "cohort-llm: {}\n", e.what());
    return 2;
  } catch (const cohort::resource_error& e) {
    fmt::print(stderr, "cohort-llm: {}\n", e.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& e) {
    fmt::print(stderr, "cohort-llm: {}: cannot be written: {}\n", e.path1().string(),
               e.code().message());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "cohort-llm: out of memory\n");
    return 2;
  } catch (const std::exception& e) {  // A device failed.
    fmt::print(stderr, "cohort-llm: {}\n", e.what());
    return 1;
  }
}
