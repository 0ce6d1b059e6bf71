// SPDX-License-Identifier: Apache-2.0
// cohort-llm: text from a Llama on the host or a GPU, batched by cohort; and what other ways of
// batching cost.
#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
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

namespace cohort::llama {
namespace {

struct model_options {
  std::string directory;
  std::string random = "tiny";
  std::uint64_t seed = 1;
};

void add_model(CLI::App* sub, model_options& o) {
  sub->add_option("--model", o.directory, "A Hugging Face directory [random weights]");
  sub->add_option("--random", o.random,
                  "Size of random weights: tiny, small, medium, large [tiny]");
  sub->add_option("--weights-seed", o.seed, "Of random weights [1]");
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
      auto& who = static_cast<asked&>(self);
      who.said += who.stops.push(who.reader.next(s.chosen.token));
      return who.stops.is_stopped();
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
  // No others are computed, however many the model claims.
  weights.config.max_positions = std::min(weights.config.max_positions, positions_of(requests));
  const llama model{std::move(weights)};
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (o.rate > 0) requests[i].arrival_s = static_cast<double>(i) / o.rate;
    tokens += requests[i].output;
  }
  fmt::print("{} requests, {} tokens to produce, {} slots, {} M parameters\n\n", requests.size(),
             tokens, o.slots, model.config().parameters() / 1000000);
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
  CLI::App app{"Text from a Llama, batched by cohort."};
  app.name("cohort-llm");
  app.require_subcommand(1);

  generate_options g;
  CLI::App* generating = app.add_subcommand("generate", "Continue prompts, all in one batch");
  add_model(generating, g.model);
  generating->add_option("prompt", g.prompts, "Prompts")->required();
  generating->add_option("--max-tokens", g.max_tokens, "Tokens to produce, each [64]")
      ->check(CLI::Range(1U, 1U << 20U));
  generating->add_option("--slots", g.slots, "Rows of the batch [8]")->check(CLI::Range(1U, 1024U));
  generating->add_option("--temperature", g.how.temperature, "0 takes the most likely [0]");
  generating->add_option("--top-k", g.how.top_k, "Only the k most likely; 0: all [0]");
  generating->add_option("--top-p", g.how.top_p, "Only the fewest that reach this share [1]");
  generating->add_option("--seed", g.how.seed, "Of the draws [0]");
  generating->add_option("--stop", g.stops, "A string that ends a text, repeatable")
      ->allow_extra_args(false);
  const registry::name_list executors = registry::decoder_executors.list();
  generating->add_option("--executor", g.executor, "Where it computes [host]:\n" + executors.help())
      ->check(CLI::IsMember(executors.forms()));
  const std::map<std::string, runtime::data_type> types{{"f32", runtime::data_type::f32},
                                                        {"f16", runtime::data_type::f16},
                                                        {"bf16", runtime::data_type::bf16}};
  generating
      ->add_option("--dtype,--type", g.gpu.type,
                   "Of weights and cache on a GPU: f32, f16, bf16 [bf16]")
      ->transform(CLI::CheckedTransformer(types));
  generating->add_option("--device", g.gpu.device, "Which GPU [0]")->check(CLI::Range(0, 1023));

  make_options make;
  CLI::App* making = app.add_subcommand("make-model", "Write a directory with random weights");
  making->add_option("directory", make.to, "Where")->required();
  making->add_option("--size", make.model.random, "tiny, small, medium or large [tiny]");
  making->add_option("--seed", make.model.seed, "Of the weights [1]");
  making->add_option("--shards", make.shards, "Weight files [1]")->check(CLI::Range(1U, 1000U));
  making
      ->add_option(
          "--tokenizer", make.words,
          "bytes: tokenizer.json over bytes; pieces: a SentencePiece tokenizer.model [bytes]")
      ->check(CLI::IsMember({"bytes", "pieces"}));

  compare_command_options c;
  CLI::App* comparing =
      app.add_subcommand("compare", "Run the Baton paper's requests by every method, in wall time");
  add_model(comparing, c.model);
  comparing->add_option("--set", c.set, "1: 120 requests, long and short; 2: 30 short [1]")
      ->check(CLI::Range(1, 2));
  comparing->add_option("--scale", c.scale, "Of the paper's lengths [0.1]");
  comparing->add_option("--rate", c.rate, "Arrivals a second; 0: all at once [0]");
  comparing->add_option("--slots", c.slots, "Rows of the batch [8]")->check(CLI::Range(1U, 1024U));
  comparing->add_option("--chunk", c.chunk, "Token rows of a piece of prefill [32]")
      ->check(CLI::Range(1U, 4096U));
  comparing->add_option("--seed", c.seed, "Of the requests [1]");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();
    std::ranges::replace(what, '\n', ' ');
    throw config_error{what};
  }
  // CLI11's Range takes nan.
  expects(c.scale >= 0.001 && c.scale <= 10, "--scale: expected a number in 0.001 to 10");
  expects(c.rate >= 0 && c.rate <= 1e9, "--rate: expected a number in 0 to 1e9");
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
    fmt::print(stderr, "cohort-llm: {}\n", e.what());
    return 2;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "cohort-llm: out of memory\n");
    return 2;
  } catch (const std::exception& e) {  // Of a device.
    fmt::print(stderr, "cohort-llm: {}\n", e.what());
    return 1;
  }
}
