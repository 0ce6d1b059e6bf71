// SPDX-License-Identifier: Apache-2.0
#include "protocol.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <llama/unicode.hpp>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace cohort::chat {
namespace {

using json = nlohmann::json;

constexpr std::size_t max_stops = 16;
constexpr std::size_t max_stop_bytes = 1024;
constexpr std::size_t max_stop_tokens = 128;

/// Bytes that are not UTF-8 become U+FFFD.
std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

[[noreturn]] void reject(std::string param, std::string message) {
  throw api_error{.message = std::move(message), .param = std::move(param)};
}

/// A field that is there and not null.
const json* find(const json& o, const char* name) {
  const auto at = o.find(name);
  return at == o.end() || at->is_null() ? nullptr : &*at;
}

std::optional<std::int64_t> whole(const json& o, const char* name, std::int64_t least,
                                  std::int64_t most) {
  const json* v = find(o, name);
  if (v == nullptr) return {};
  // Some clients write every number with a point: 5.0 is an integer, too.
  const double number = v->is_number_float() ? v->get<double>() : 0;
  if (!v->is_number() || std::trunc(number) != number) {
    reject(name, fmt::format("{}: expected an integer, got {}", name,
                             v->is_number() ? v->dump() : v->type_name()));
  }
  const bool is_huge = (v->is_number_unsigned() &&
                        v->get<std::uint64_t>() >
                            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) ||
                       std::abs(number) >= 0x1p63;
  if (is_huge || v->get<std::int64_t>() < least || v->get<std::int64_t>() > most) {
    reject(name, fmt::format("{}: got {}, expected {} to {}", name, v->dump(), least, most));
  }
  return v->get<std::int64_t>();
}

std::optional<float> real(const json& o, const char* name, double least, double most) {
  const json* v = find(o, name);
  if (v == nullptr) return {};
  if (!v->is_number()) {
    reject(name, fmt::format("{}: expected a number, got {}", name, v->type_name()));
  }
  const double x = v->get<double>();
  if (!(x >= least && x <= most)) {
    reject(name, fmt::format("{}: got {}, expected {} to {}", name, v->dump(), least, most));
  }
  return static_cast<float>(x);
}

bool flag(const json& o, const char* name) {
  const json* v = find(o, name);
  if (v == nullptr) return false;
  if (!v->is_boolean()) {
    reject(name, fmt::format("{}: expected true or false, got {}", name, v->type_name()));
  }
  return v->get<bool>();
}

std::vector<std::string> read_stops(const json& o) {
  std::vector<std::string> out;
  const json* v = find(o, "stop");
  if (v == nullptr) return out;
  const auto add = [&](const json& s) {
    if (!s.is_string()) reject("stop", "stop: expected a string or an array of strings");
    out.push_back(s.get<std::string>());
    if (out.back().empty()) reject("stop", "stop: a string is empty");
    if (out.back().size() > max_stop_bytes) {
      reject("stop", fmt::format("stop: a string is over {} bytes", max_stop_bytes));
    }
  };
  if (!v->is_array()) {
    add(*v);
    return out;
  }
  if (v->size() > max_stops) {
    reject("stop", fmt::format("stop: {} strings: at most {} are allowed", v->size(), max_stops));
  }
  for (const json& s : *v) add(s);
  return out;
}

/// A field of which the server knows but the values that change nothing.
struct fixed_field {
  const char* name;
  const char* type;           ///< As errors name it; empty: any.
  std::vector<json> neutral;  ///< Beside null.
};

bool is_of(const json& v, std::string_view type) {
  return type.empty() || (type == "an array" && v.is_array()) ||
         (type == "an object" && v.is_object()) || (type == "a number" && v.is_number()) ||
         (type == "true or false" && v.is_boolean()) ||
         (type.starts_with("a string") && v.is_string()) ||
         (type.ends_with("or an object") && v.is_object());
}

const std::vector<fixed_field>& fixed_fields() {
  static const std::vector<fixed_field> all{
      {"tool_choice", "a string or an object", {"none", "auto"}},
      {"function_call", "a string or an object", {"none", "auto"}},
      {"modalities", "an array", {json::array(), json::array({"text"})}},
      {"audio", "an object", {}},
      {"prediction", "an object", {}},
      {"logit_bias", "an object", {json::object()}},
      {"suffix", "a string", {""}},
      {"echo", "true or false", {false}},
      {"min_p", "a number", {0}},
      {"min_tokens", "a number", {0}},
      {"typical_p", "a number", {1}},
      {"repetition_penalty", "a number", {1}},
      {"length_penalty", "a number", {1}},
      {"use_beam_search", "true or false", {false}},
      {"include_stop_str_in_output", "true or false", {false}},
      {"truncate_prompt_tokens", "a number", {}},
      {"prompt_logprobs", "a number", {}},
      {"continue_final_message", "true or false", {false}},
      {"chat_template", "a string", {}},
      {"chat_template_kwargs", "an object", {json::object()}},
      {"add_generation_prompt", "true or false", {true}},
      {"skip_special_tokens", "true or false", {true}},
      {"return_token_ids", "true or false", {false}},
      {"repeat_penalty", "a number", {1}},
      {"grammar", "a string", {""}},
      {"bad_words", "an array", {json::array()}},
      {"web_search_options", "an object", {}},
      {"guided_json", "", {}},
      {"guided_regex", "", {}},
      {"guided_choice", "", {}},
      {"guided_grammar", "", {}},
      {"structured_outputs", "", {}}};
  return all;
}

/// A field that says nothing of the answer: whatever its value, ignoring it changes nothing.
struct free_field {
  const char* name;
  const char* type;  ///< As of `fixed_field`.
};
constexpr std::array free_fields{free_field{"user", "a string"},
                                 free_field{"metadata", "an object"},
                                 free_field{"safety_identifier", "a string"},
                                 free_field{"prompt_cache_key", "a string"},
                                 free_field{"prompt_cache_retention", "a string"},
                                 free_field{"cache_prompt", "true or false"},
                                 free_field{"parallel_tool_calls", "true or false"},
                                 free_field{"store", "true or false"},
                                 free_field{"service_tier", "a string"},
                                 free_field{"reasoning_effort", "a string"},
                                 free_field{"verbosity", "a string"},
                                 free_field{"request_id", "a string"}};

/// Fields with a meaning here: of both paths, and of each.
constexpr std::array read_fields_of_all{"model",
                                        "n",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "seed",
                                        "priority",
                                        "ignore_eos",
                                        "stop",
                                        "stop_token_ids",
                                        "stream",
                                        "stream_options",
                                        "max_tokens",
                                        "max_completion_tokens",
                                        "logprobs",
                                        "response_format",
                                        "best_of",
                                        "tools",
                                        "functions"};
constexpr std::array read_fields_of_chats{"messages", "top_logprobs"};
constexpr std::array read_fields_of_completions{"prompt"};

[[noreturn]] void refuse(std::string_view name) {
  reject(std::string{name}, fmt::format("{}: not supported by this server", name));
}

void check_type(const json& v, const char* name, const char* type) {
  if (is_of(v, type)) return;
  reject(name, fmt::format("{}: expected {}, got {}", name, type, v.type_name()));
}

/// A misspelt field must not be ignored in silence, and neither one of another server. Null says as
/// little as no field at all.
template <class IsKnown>
void check_known(const json& o, std::string_view within, IsKnown is_known) {
  for (const auto& [name, value] : o.items()) {
    if (value.is_null() || is_known(name)) continue;
    // Cut between two characters.
    std::size_t size = std::min<std::size_t>(name.size(), 100);
    while (size < name.size() && (static_cast<unsigned char>(name[size]) & 0xC0U) == 0x80U) --size;
    const std::string shown = fmt::format("{}{}", within, name.substr(0, size));
    reject(shown, fmt::format("{}: unknown field", shown));
  }
}

/// What this server does not do must not be ignored in silence.
void check_unsupported(const json& o, bool is_chat, bool is_lenient) {
  for (const fixed_field& f : fixed_fields()) {
    const json* v = find(o, f.name);
    if (v == nullptr) continue;
    check_type(*v, f.name, f.type);
    if (std::ranges::find(f.neutral, *v) == f.neutral.end()) refuse(f.name);
  }
  for (const free_field& f : free_fields) {
    if (const json* v = find(o, f.name)) check_type(*v, f.name, f.type);
  }
  // Tools that may not be called are as good as none.
  for (const auto& [tools, choice] :
       {std::pair{"tools", "tool_choice"}, std::pair{"functions", "function_call"}}) {
    const json* v = find(o, tools);
    if (v == nullptr) continue;
    check_type(*v, tools, "an array");
    const json* chosen = find(o, choice);
    if (!v->empty() && (chosen == nullptr || *chosen != "none")) refuse(tools);
  }
  if (const json* v = find(o, "response_format")) {
    check_type(*v, "response_format", "an object");
    if (v->value("type", json{}) != "text") refuse("response_format");
  }
  if (const json* v = find(o, "best_of"); v != nullptr && *v != o.value("n", json(1)) && *v != 1) {
    refuse("best_of");
  }
  if (is_lenient) return;
  const auto is_in = [](const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  check_known(o, "", [&](std::string_view name) {
    return is_in(read_fields_of_all, name) ||
           (is_chat ? is_in(read_fields_of_chats, name)
                    : is_in(read_fields_of_completions, name)) ||
           std::ranges::find(free_fields, name, &free_field::name) != free_fields.end() ||
           std::ranges::find(fixed_fields(), name, &fixed_field::name) != fixed_fields().end();
  });
}

/// @param field Named in errors.
std::vector<kv::token_id> as_tokens(const json& list, std::size_t vocabulary, const char* field) {
  std::vector<kv::token_id> out;
  out.reserve(list.size());
  for (const json& t : list) {
    if (!t.is_number_unsigned() || t.get<std::uint64_t>() >= vocabulary) {
      reject(field, fmt::format("{}: expected token ids of 0 to {}", field, vocabulary - 1));
    }
    out.push_back(static_cast<kv::token_id>(t.get<std::uint64_t>()));
  }
  return out;
}

std::vector<kv::token_id> read_stop_tokens(const json& o, std::size_t vocabulary) {
  constexpr const char* field = "stop_token_ids";
  const json* v = find(o, field);
  if (v == nullptr) return {};
  if (!v->is_array()) {
    reject(field, fmt::format("{}: expected an array, got {}", field, v->type_name()));
  }
  if (v->size() > max_stop_tokens) {
    reject(field,
           fmt::format("{}: {} tokens: at most {} are allowed", field, v->size(), max_stop_tokens));
  }
  return as_tokens(*v, vocabulary, field);
}

[[noreturn]] void reject_length(const served_model& m, bool is_chat, std::string_view what) {
  throw api_error{.message = fmt::format("This model's maximum context length is {} tokens: {}",
                                         m.context, what),
                  .param = is_chat ? "messages" : "prompt",
                  .code = "context_length_exceeded"};
}

/// Refuses what has too many bytes for the context whatever its tokens are, before any is made.
void check_bytes(const served_model& m, bool is_chat, std::size_t bytes) {
  const std::size_t longest = m.words->longest_token(!is_chat);
  if (longest == 0) return;
  const std::size_t least = (bytes + longest - 1) / longest;
  if (least >= m.context) {
    reject_length(m, is_chat, fmt::format("the prompt has at least {}", least));
  }
}

std::vector<kv::token_id> encode(const served_model& m, const std::string& prompt) {
  check_bytes(m, false, prompt.size());
  return m.words->encode(prompt);
}

std::vector<std::vector<kv::token_id>> read_prompts(const json& o, const served_model& m) {
  const json* v = find(o, "prompt");
  constexpr const char* expected =
      "prompt: expected a string, an array of strings, of token ids, or of arrays of token ids";
  if (v == nullptr) reject("prompt", "prompt: missing");
  std::vector<std::vector<kv::token_id>> out;
  if (v->is_string()) {
    out.push_back(encode(m, v->get_ref<const std::string&>()));
  } else if (v->is_array() && !v->empty() && v->front().is_number()) {
    out.push_back(as_tokens(*v, m.vocabulary, "prompt"));
  } else if (v->is_array() && !v->empty()) {
    if (v->size() > m.max_choices) {
      reject("prompt",
             fmt::format("prompt: {} prompts: at most {} are allowed", v->size(), m.max_choices));
    }
    for (const json& p : *v) {
      if (p.is_string()) {
        out.push_back(encode(m, p.get_ref<const std::string&>()));
      } else if (p.is_array()) {
        out.push_back(as_tokens(p, m.vocabulary, "prompt"));
      } else {
        reject("prompt", expected);
      }
    }
  } else {
    reject("prompt", expected);
  }
  for (auto& p : out) {
    if (p.empty()) p.push_back(std::max(0, m.begin_token));
  }
  return out;
}

std::vector<message> read_messages(const json& o) {
  const json* v = find(o, "messages");
  if (v == nullptr) reject("messages", "messages: missing");
  if (!v->is_array() || v->empty()) {
    reject("messages", "messages: expected an array of at least one message");
  }
  std::vector<message> out;
  for (std::size_t i = 0; i < v->size(); ++i) {
    const json& m = (*v)[i];
    const std::string at = fmt::format("messages[{}]", i);
    if (!m.is_object()) reject(at, at + ": expected an object");
    const json* role = find(m, "role");
    if (role == nullptr || !role->is_string()) {
      reject(at + ".role", at + ".role: expected a string");
    }
    message& to = out.emplace_back(message{role->get<std::string>(), {}});
    // Models know no developer: what one says is the system's.
    if (to.role == "developer") to.role = "system";
    const std::initializer_list<std::string_view> roles{"system", "user", "assistant", "tool"};
    if (std::ranges::find(roles, to.role) == roles.end()) {
      reject(at + ".role", at + ".role: expected system, developer, user, assistant or tool");
    }
    for (const char* call : {"tool_calls", "function_call"}) {
      const json* asked = find(m, call);
      if (asked == nullptr || *asked == json::array()) continue;
      const std::string field = fmt::format("{}.{}", at, call);
      reject(field, field + ": not supported by this server");
    }
    const json* content = find(m, "content");
    if (content != nullptr && content->is_string()) {
      to.text = content->get<std::string>();
    } else if (content != nullptr && content->is_array()) {
      for (const json& part : *content) {
        const json* text = part.is_object() ? find(part, "text") : nullptr;
        if (text == nullptr || !text->is_string() || part.value("type", json{}) != "text") {
          reject(at + ".content", at + ".content: only parts of type text are supported");
        }
        to.text += text->get<std::string>();
      }
    } else if (content == nullptr && to.role == "assistant") {
      // It has said nothing.
    } else {
      reject(at + ".content", at + ".content: expected a string or an array of parts");
    }
  }
  return out;
}

void read_limits(const json& o, const served_model& m, text_request& r) {
  std::size_t longest = 0;
  for (const auto& p : r.prompts) longest = std::max(longest, p.size());
  const auto too_long = [&](const std::string& what) { reject_length(m, r.is_chat, what); };
  if (longest >= m.context) too_long(fmt::format("the prompt has {}", longest));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  auto asked = whole(o, "max_tokens", 1, most);
  if (const auto newer = whole(o, "max_completion_tokens", 1, most)) asked = newer;
  const auto left = static_cast<std::int64_t>(m.context - longest);
  if (asked && *asked > left) {
    too_long(fmt::format("the prompt has {} and {} more were asked for", longest, *asked));
  }
  r.max_new = static_cast<std::uint32_t>(
      asked.value_or(r.is_chat ? left : std::min<std::int64_t>(left, 16)));
}

text_request read_fields(std::string_view body, bool is_chat, const served_model& m) {
  json o;
  try {
    o = json::parse(body.begin(), body.end());
  } catch (const json::exception& e) {
    std::string what = e.what();
    if (const std::size_t at = what.find("] "); at != std::string::npos) what.erase(0, at + 2);
    what = what.substr(0, 200);
    throw api_error{.message = "The body is not valid JSON: " + what, .code = "invalid_json"};
  }
  if (!o.is_object()) throw api_error{.message = "The body must be a JSON object"};
  const json* name = find(o, "model");
  if (name == nullptr) reject("model", "model: missing");
  if (!name->is_string()) reject("model", "model: expected a string");
  if (name->get_ref<const std::string&>() != m.name) {
    throw api_error{.status = 404,
                    .message = fmt::format("The model '{}' does not exist",
                                           name->get_ref<const std::string&>().substr(0, 200)),
                    .param = "model",
                    .code = "model_not_found"};
  }
  check_unsupported(o, is_chat, m.is_lenient);

  text_request r{.is_chat = is_chat};
  r.n = static_cast<std::uint32_t>(whole(o, "n", 1, m.max_choices).value_or(1));
  r.how.temperature = real(o, "temperature", 0, 2).value_or(1);
  r.how.top_p = std::max(real(o, "top_p", 0, 1).value_or(1), std::numeric_limits<float>::min());
  r.how.top_k = static_cast<std::uint32_t>(
      std::max<std::int64_t>(0, whole(o, "top_k", -1, 1 << 30U).value_or(0)));  // -1: all, as 0.
  r.how.presence_penalty = real(o, "presence_penalty", -2, 2).value_or(0);
  r.how.frequency_penalty = real(o, "frequency_penalty", -2, 2).value_or(0);
  if (const auto seed = whole(o, "seed", std::numeric_limits<std::int64_t>::min(),
                              std::numeric_limits<std::int64_t>::max())) {
    r.how.seed = static_cast<std::uint64_t>(*seed);
    r.has_seed = true;
  }
  r.priority = static_cast<std::uint8_t>(128 + whole(o, "priority", -128, 127).value_or(0));
  r.ignores_end = flag(o, "ignore_eos");
  r.stops = read_stops(o);
  r.stop_tokens = read_stop_tokens(o, m.vocabulary);
  if (is_chat) {
    r.shows_tokens = flag(o, "logprobs");
    const auto top = whole(o, "top_logprobs", 0, 20);
    if (top && !r.shows_tokens) reject("top_logprobs", "top_logprobs: needs logprobs: true");
    r.how.logprobs = static_cast<std::uint32_t>(top.value_or(0));
  } else if (const auto top = whole(o, "logprobs", 0, 5)) {
    r.shows_tokens = true;
    r.how.logprobs = static_cast<std::uint32_t>(*top);
  }
  r.streams = flag(o, "stream");
  if (const json* v = find(o, "stream_options")) {
    if (!v->is_object()) reject("stream_options", "stream_options: expected an object");
    if (!r.streams) reject("stream_options", "stream_options: needs stream: true");
    r.includes_usage = flag(*v, "include_usage");
    // Hints: neither changes a token.
    for (const char* other : {"include_obfuscation", "continuous_usage_stats"}) flag(*v, other);
    if (!m.is_lenient) {
      check_known(*v, "stream_options.", [](std::string_view option) {
        return option == "include_usage" || option == "include_obfuscation" ||
               option == "continuous_usage_stats";
      });
    }
  }

  if (is_chat) {
    const std::vector<message> messages = read_messages(o);
    if (const std::string why = m.chat->complaint(messages); !why.empty()) {
      reject("messages", fmt::format("messages: {}", why));
    }
    check_bytes(m, true, m.chat->least_bytes(messages));
    r.prompts.push_back(m.chat->write(messages));
    for (std::string& s : m.chat->stops()) r.stops.push_back(std::move(s));
  } else {
    r.prompts = read_prompts(o, m);
  }
  if (r.prompts.size() * r.n > m.max_choices) {
    reject("n", fmt::format("n: {} sequences for each of {} prompts: at most {} in all are allowed",
                            r.n, r.prompts.size(), m.max_choices));
  }
  read_limits(o, m, r);
  return r;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const llama::code_point c = llama::next_code_point(text);
    if (c.value == 0xFFFD && c.length == 1) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

/// A token as a name that can be read, most often one that no other token has.
std::string name_of(const llama::tokenizer& words, kv::token_id token) {
  const std::string& name = words.name_of(token);
  if (name.empty()) return fmt::format("token_id:{}", token);
  if (is_utf8(name)) return name;
  std::string out = "bytes:";
  for (const char c : name) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

json completion_logprobs(const served_model& m, const std::vector<shown_token>& tokens) {
  json out{{"tokens", json::array()},
           {"token_logprobs", json::array()},
           {"top_logprobs", json::array()},
           {"text_offset", json::array()}};
  for (const shown_token& t : tokens) {
    const llama::scored_token& chosen = t.what.chosen;
    const std::string name = name_of(*m.words, chosen.token);
    out["tokens"].push_back(name);
    out["token_logprobs"].push_back(chosen.logprob);
    // The chosen one is always among them, so there may be one more than were asked for.
    json top{{name, chosen.logprob}};
    for (const llama::scored_token& s : t.what.top) {
      if (s.token == chosen.token) continue;
      std::string other = name_of(*m.words, s.token);
      if (top.contains(other)) other = fmt::format("token_id:{}", s.token);
      top[other] = s.logprob;
    }
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(t.characters);
  }
  return out;
}

json chat_logprobs(const served_model& m, const std::vector<shown_token>& tokens) {
  const auto scored = [&](const llama::scored_token& t) {
    const std::string& text = m.words->bytes_of(t.token);
    json bytes;  // Null where the token is no text.
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return json{{"token", text.empty() ? name_of(*m.words, t.token) : text},
                {"logprob", t.logprob},
                {"bytes", std::move(bytes)}};
  };
  json content = json::array();
  for (const shown_token& t : tokens) {
    json& e = content.emplace_back(scored(t.what.chosen));
    e["top_logprobs"] = json::array();
    for (const llama::scored_token& s : t.what.top) e["top_logprobs"].push_back(scored(s));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json logprobs_of(const served_model& m, const answer_head& head,
                 const std::vector<shown_token>& tokens) {
  if (!head.shows_tokens) return nullptr;
  return head.is_chat ? chat_logprobs(m, tokens) : completion_logprobs(m, tokens);
}

json usage_of(const token_usage& u) {
  return {{"prompt_tokens", u.prompt},
          {"completion_tokens", u.completion},
          {"total_tokens", u.prompt + u.completion}};
}

json frame(const served_model& m, const answer_head& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", m.name},
          {"choices", json::array()}};
}

std::string event(const json& j) { return "data: " + dump(j) + "\n\n"; }

json chunk(const served_model& m, const answer_head& head) {
  json out = frame(m, head, head.is_chat ? "chat.completion.chunk" : "text_completion");
  if (head.includes_usage) out["usage"] = nullptr;
  return out;
}

json model_json(const served_model& m) {
  return {{"id", m.name},
          {"object", "model"},
          {"created", m.created},
          {"owned_by", "cohort"},
          {"max_model_len", m.context}};
}

}  // namespace

std::variant<text_request, api_error> read_request(std::string_view body, bool is_chat,
                                                   const served_model& model) {
  try {
    return read_fields(body, is_chat, model);
  } catch (const api_error& e) {
    return e;
  }
}

std::string write_error(const api_error& e) {
  const auto or_null = [](const std::string& s) { return s.empty() ? json{} : json(s); };
  return dump({{"error",
                {{"message", e.message},
                 {"type", e.type},
                 {"param", or_null(e.param)},
                 {"code", or_null(e.code)}}}});
}

api_error error_of(int status, std::string message) {
  api_error e{.status = status, .message = std::move(message)};
  if (status == 429) {
    e.type = "rate_limit_error";
    e.code = "queue_full";
  } else if (status == 503) {
    e.type = "service_unavailable_error";
  } else if (status >= 500) {
    e.type = "server_error";
  }
  return e;
}

std::string write_models(const served_model& model) {
  return dump({{"object", "list"}, {"data", json::array({model_json(model)})}});
}
std::string write_model(const served_model& model) { return dump(model_json(model)); }

std::string write_answer(const served_model& model, const answer_head& head,
                         const std::vector<answer_text>& texts, const token_usage& usage) {
  json out = frame(model, head, head.is_chat ? "chat.completion" : "text_completion");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    json c{{"index", i},
           {"finish_reason", texts[i].finish_reason},
           {"logprobs", logprobs_of(model, head, texts[i].tokens)}};
    if (head.is_chat) {
      c["message"] = {{"role", "assistant"}, {"content", texts[i].text}, {"refusal", nullptr}};
    } else {
      c["text"] = texts[i].text;
    }
    out["choices"].push_back(std::move(c));
  }
  out["usage"] = usage_of(usage);
  return dump(out);
}

std::string write_first(const served_model& model, const answer_head& head, std::uint32_t choice) {
  json out = chunk(model, head);
  out["choices"].push_back({{"index", choice},
                            {"delta", {{"role", "assistant"}, {"content", ""}}},
                            {"logprobs", nullptr},
                            {"finish_reason", nullptr}});
  return event(out);
}

std::string write_more(const served_model& model, const answer_head& head, std::uint32_t choice,
                       const answer_text& more) {
  json out = chunk(model, head);
  json c{{"index", choice},
         {"logprobs", more.tokens.empty() ? json{} : logprobs_of(model, head, more.tokens)},
         {"finish_reason", more.finish_reason.empty() ? json{} : json(more.finish_reason)}};
  if (head.is_chat) {
    c["delta"] = json::object();
    if (!more.text.empty()) c["delta"]["content"] = more.text;
  } else {
    c["text"] = more.text;
  }
  out["choices"].push_back(std::move(c));
  return event(out);
}

std::string write_usage(const served_model& model, const answer_head& head,
                        const token_usage& usage) {
  json out = chunk(model, head);
  out["usage"] = usage_of(usage);
  return event(out);
}

std::string write_failure(const api_error& e) { return "data: " + write_error(e) + "\n\n"; }

std::string_view finish_name(kv::finish_reason why) noexcept {
  switch (why) {
    case kv::finish_reason::stop:
      return "stop";
    case kv::finish_reason::length:
    case kv::finish_reason::context_length:
      return "length";
    default:
      return {};
  }
}

}  // namespace cohort::chat
