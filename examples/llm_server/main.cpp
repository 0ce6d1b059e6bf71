// SPDX-License-Identifier: Apache-2.0
// A text server with OpenAI's protocol: a Llama model on the host or a GPU, batched by cohort.
#include <cohort/core/error.hpp>
#include <cohort/serve/key_ring.hpp>
#include <cohort/serve/server_life.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <llama/tokenizer.hpp>
#include <llama/weights.hpp>
#include <optional>
#include <registry/decoder_executors.hpp>
#include <serve/log.hpp>
#include <string>
#include <utility>

#include <chat/chat.hpp>
#include <chat/chat_app.hpp>
#include <chat/chat_metrics.hpp>
#include <chat/memory.hpp>
#include <chat/text_service.hpp>
#include "options.hpp"

namespace cohort::chat {
namespace {

llama::tokenizer open_tokenizer(const options& o) {
  if (o.model.empty()) return llama::tokenizer::bytes();
  return llama::tokenizer::open(o.model);
}

chat_template template_of(const options& o) {
  const auto chosen =
      std::ranges::find(chat_forms, o.chat_template, [](chat_form f) { return to_string(f); });
  const chat_form* form = chosen == chat_forms.end() ? nullptr : &*chosen;
  if (!o.model.empty()) return chat_template_of(o.model, form);
  chat_template t;
  if (form != nullptr) t.form = *form;
  return t;
}

std::string name_of(const options& o) {
  if (!o.name.empty()) return o.name;
  if (o.model.empty()) return "random-" + o.random;
  const std::filesystem::path path = std::filesystem::absolute(o.model).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

/// Bytes of a token's keys and values on the generator's device.
std::uint64_t column_bytes(const llama::llama_config& c, const llama::chosen_executor& on) {
  return on.gpu && on.gpu->type != runtime::data_type::f32 ? c.column_bytes() / 2
                                                           : c.column_bytes();
}

/// The parts behind the server; each is destroyed before the parts that it uses.
struct loaded {
  std::optional<llama::tokenizer> words;
  std::optional<chat_writer> chat;
  std::optional<text_service> texts;
};

int run(options o) {
  const llama::chosen_executor on = registry::choose_executor(o.executor, o.gpu);
  serve::key_ring keys{o.api_keys, "--api-key-file", o.api_key_file};
  serve::http_server http{o.http};
  chat_metrics counters{0};
  chat_app answers{http, counters, &keys, o.life.management_port.has_value()};
  loaded model;  // Declared before its user, `life`: destroyed later.
  o.life.name = o.http.name;
  o.life.host = o.http.host;
  o.life.keys = {&keys};
  // Before the weights are loaded: a port in use is reported at once, and probes are answered.
  serve::server_life life{http, answers, answers, o.life};
  life.begin();
  llama::llama_weights weights =
      o.model.empty() ? llama::random_weights(llama::named_config(o.random), o.weights_seed)
                      : llama::load_weights(o.model);
  const llama::tokenizer& words = model.words.emplace(open_tokenizer(o));
  const llama::llama_config c = weights.config;
  expects(words.size() <= c.vocabulary, "the tokenizer has tokens that the model does not");
  const chat_writer& chat = model.chat.emplace(template_of(o), words, c);

  llama::generator_options& memory = o.service.generator;
  size_memory(memory, o.memory, c, column_bytes(c, on));
  counters.kv_budget.set(static_cast<double>(o.service.generator.kv_bytes));
  text_service& texts =
      model.texts.emplace(llama::make_generator(std::move(weights), o.service.queued(), on), c,
                          words, o.service, answers, counters);
  const served_model served{.name = name_of(o),
                            .created = std::chrono::duration_cast<std::chrono::seconds>(
                                           std::chrono::system_clock::now().time_since_epoch())
                                           .count(),
                            .words = &words,
                            .chat = &chat,
                            .vocabulary = c.vocabulary,
                            .begin_token = c.begin_token,
                            .end_tokens = c.end_tokens,
                            .context = texts.context(),
                            .max_choices = static_cast<std::uint32_t>(
                                std::min<std::size_t>(o.max_choices, texts.capacity())),
                            .is_lenient = o.lenient};
  life.become_ready([&] { answers.start(served, texts, o.service.generator.slots); });
  serve::print_lines(
      serve::log_stream::out,
      fmt::format(
          "llm_server: ready on {}{} | {} ({:.1f} M parameters, {}) | {} | {} slots, {} "
          "| chat template {}\n",
          http.url(), life.management_url(), served.name, static_cast<double>(c.parameters()) / 1e6,
          o.model.empty() ? "random weights" : "from its directory", on.description, memory.slots,
          to_string(longest_text(c, memory, column_bytes(c, on))), to_string(chat.form())));
  serve::log_line(serve::severity::info, serve::log_stream::err, "llm_server",
                  keys.is_empty() ? "keys: none" : "keys: needed");
  life.wait();
  return life.end([&] {
    answers.end();
    model.texts.reset();
  });
}

}  // namespace
}  // namespace cohort::chat

int main(int argc, char** argv) {
  using namespace cohort;
  serve::start_log("llm_server");
  const serve::log_flush at_the_end;
  const auto fail = [](int status, const std::exception& e) {
    serve::print_lines(serve::log_stream::err, fmt::format("llm_server: {}\n", e.what()));
    return status;
  };
  try {
    const auto options = chat::parse_options(argc, argv);
    return chat::run(options);
  } catch (const config_error& e) {
    return fail(2, e);
  } catch (const resource_error& e) {
    return fail(2, e);
  } catch (const std::exception& e) {
    return fail(1, e);
  }
}
