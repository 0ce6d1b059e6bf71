// SPDX-License-Identifier: Apache-2.0
#include "chat_template.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <llama/weights.hpp>
#include <nlohmann/json.hpp>
#include <optional>

namespace cohort::chat {
namespace {

constexpr char inner_quote = '\x01';  // Stands for a quote within a literal.

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

/// What is between a tag's brackets, without blanks, and with all literals in single quotes.
std::string tag_text(std::string_view inside) {
  std::string out;
  char quote = 0;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    char c = inside[i];
    if (quote == 0) {
      if (c == '\'' || c == '"') {
        quote = c;
        out += '\'';
      } else if (!is_blank(c)) {
        out += c;
      }
      continue;
    }
    if (c == quote) {
      quote = 0;
      out += '\'';
      continue;
    }
    if (c == '\\' && i + 1 < inside.size()) {
      c = inside[++i];
      if (c == 'n') c = '\n';
    }
    out += c == '\'' ? inner_quote : c;
  }
  // One spelling of each: adjacent literals joined, members by subscript.
  replace_all(out, "'+'", "");
  replace_all(out, "message.role", "message['role']");
  replace_all(out, "message.content", "message['content']");
  return out;
}

/// A template with each tag in one spelling and the text between them as it would be written: with
/// the blank space gone that its signs, and `trim_blocks` and `lstrip_blocks`, take.
/// @param between All of that text.
std::string canonical(std::string_view jinja, std::string& between) {
  std::string out;
  if (jinja.ends_with('\n')) jinja.remove_suffix(1);  // Not kept.
  bool trims = false;                                 // The tag before ends with a minus sign.
  bool is_block = false;
  for (;;) {
    std::size_t open = jinja.find('{');
    while (open != std::string_view::npos && open + 1 < jinja.size() &&
           std::string_view{"{%#"}.find(jinja[open + 1]) == std::string_view::npos) {
      open = jinja.find('{', open + 1);
    }
    if (open + 1 >= jinja.size()) open = std::string_view::npos;
    std::string_view text = jinja.substr(0, open);
    if (is_block && text.starts_with('\n')) text.remove_prefix(1);
    while (trims && !text.empty() && is_blank(text.front())) text.remove_prefix(1);
    if (open == std::string_view::npos) {
      between += text;
      return out.append(text);
    }

    const char kind = jinja[open + 1];
    std::size_t from = open + 2;
    const bool strips = from < jinja.size() && jinja[from] == '-';
    if (strips) {
      ++from;
      while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    } else if (kind != '{') {
      std::size_t end = text.size();
      while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
      const bool begins_line = end > 0 ? text[end - 1] == '\n' : out.empty() || is_block;
      if (begins_line) text = text.substr(0, end);
    }
    out += text;
    between += text;

    // Its end, behind all literals.
    std::size_t to = from;
    char quote = 0;
    const char last = kind == '{' ? '}' : kind;
    for (; to + 1 < jinja.size(); ++to) {
      const char c = jinja[to];
      if (kind != '#' && quote != 0) {
        if (c == '\\') ++to;
        if (c == quote) quote = 0;
      } else if (kind != '#' && (c == '\'' || c == '"')) {
        quote = c;
      } else if (c == last && jinja[to + 1] == '}') {
        break;
      }
    }
    if (to + 1 >= jinja.size()) return out;  // Not closed: no form is found in what there is.
    std::string_view inside = jinja.substr(from, to - from);
    trims = inside.ends_with('-');
    if (trims) inside.remove_suffix(1);
    is_block = kind != '{';
    if (kind != '#') {
      out += '{';
      out += kind;
      out += tag_text(inside);
      out += last;
      out += '}';
    }
    jinja.remove_prefix(to + 2);
  }
}

/// What stands between two marks, if it is one literal, the same wherever they are.
/// @returns Whether there is no contradiction.
bool find_literal(std::string_view in, std::string_view before, std::string_view after,
                  std::string& out) {
  bool is_found = false;
  for (std::size_t at = 0; (at = in.find(before, at)) != std::string_view::npos;) {
    at += before.size();
    const std::size_t end = in.find('\'', at);
    if (end == std::string_view::npos) return false;
    std::string_view literal = in.substr(at, end - at);
    if (literal.empty()) continue;  // Something that is not literal follows.
    if (!literal.ends_with(after)) return false;
    literal.remove_suffix(after.size());
    std::string text{literal};
    std::ranges::replace(text, inner_quote, '\'');
    if (is_found && text != out) return false;
    is_found = true;
    out = std::move(text);
  }
  return true;
}

/// @param between What is written besides expressions, wherever that is: what is not the form's own
///        would be missing.
std::optional<chat_template> recognise(std::string_view text, std::string_view between) {
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  const auto has_all = [&](std::initializer_list<std::string_view> parts) {
    return std::ranges::all_of(parts, has);
  };
  chat_template t;
  t.begins = text.starts_with("{{bos_token}}");
  const std::string_view behind = t.begins ? text.substr(13) : text;
  const bool begins_elsewhere = behind.find("bos_token") != std::string_view::npos;

  if (has_all(
          {"'<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim"
           "+'<|eot_id|>'",
           "'<|start_header_id|>assistant<|end_header_id|>\n\n'", "bos_token"})) {
    t.form = chat_form::llama3;
    if (!between.empty()) return {};
    if (!has("<|start_header_id|>system")) return t;
    t.form = chat_form::llama3_1;
    if (!t.begins ||
        !has_all({"{{'<|start_header_id|>system<|end_header_id|>\n\n'}}",
                  "{{'Cutting Knowledge Date: December 2023\n'}}"
                  "{{'Today Date: '+date_string+'\n\n'}}",
                  "{{system_message}}{{'<|eot_id|>'}}", "messages[0]['content']|trim"})) {
      return {};
    }
    t.wraps_tools = has("<|start_header_id|>ipython<|end_header_id|>\n\n");
    t.date.clear();  // Today's.
    if (has("setdate_string=strftime_now('%d %b %Y')")) return t;
    if (!find_literal(text, "setdate_string='", "", t.date) || t.date.empty()) return {};
    return t;
  }
  if (has("</think>")) {
    const bool by_member =
        has("'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n'") &&
        has("setcontent=message['content'].split('</think>')[-1].lstrip('\n')");
    const bool by_name = has("'<|im_start|>'+message['role']+'\n'+content+'<|im_end|>\n'") &&
                         has("setcontent=content.split('</think>')[-1].lstrip('\n')") &&
                         has("setcontent=message['content']%}");
    if ((!by_member && !by_name) || !between.empty() || t.begins || begins_elsewhere ||
        !has_all({"setns=namespace(multi_step_tool=true,last_query_index=messages|length-1)",
                  "split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')",
                  "{%ifloop.index0>ns.last_query_index%}{%ifloop.lastor(notloop.lastand"
                  "reasoning_content)%}{{'<|im_start|>'+message['role']+'\n<think>\n'+"
                  "reasoning_content.strip('\n')+'\n</think>\n\n'+content.lstrip('\n')}}"
                  "{%else%}{{'<|im_start|>'+message['role']+'\n'+content}}{%endif%}"
                  "{%else%}{{'<|im_start|>'+message['role']+'\n'+content}}{%endif%}",
                  "{{'<|im_end|>\n'}}", "{{'<|im_start|>assistant\n'}}",
                  "'<|im_start|>system\n'+messages[0]"}) ||
        !find_literal(text, "'<|im_start|>system\n", "<|im_end|>\n", t.system) ||
        !t.system.empty()) {
      return {};
    }
    t.form = chat_form::qwen3;
    return t;
  }
  if (has("'<|im_start|>'+message['role']+'\n'+message['content']") &&
      has("'<|im_start|>assistant\n'")) {
    t.form = chat_form::chatml;
    t.wraps_tools = has("<tool_response>\n");
    const bool by_text = has("message['content']+'<|im_end|>'}}\n");
    const bool ends =
        by_text || has("message['content']+'<|im_end|>\n'") ||
        has("message['content']}}{%if(loop.lastandadd_generation_prompt)ornotloop.last%}"
            "{{'<|im_end|>\n'}}");
    // A system's text that is made elsewhere is not found.
    if (!ends || between != (by_text ? "\n" : "") || begins_elsewhere ||
        has("setsystem_message='") ||
        !find_literal(text, "'<|im_start|>system\n", "<|im_end|>\n", t.system)) {
      return {};
    }
    return t;
  }
  if (has_all({"{{'<|system|>\n'+message['content']+eos_token",
               "{{'<|user|>\n'+message['content']+",
               "{{'<|assistant|>\n'+message['content']+eos_token"})) {
    t.form = chat_form::zephyr;
    const bool by_text = has("'<|user|>\n'+message['content']+eos_token}}\n") &&
                         has("'<|system|>\n'+message['content']+eos_token}}\n") &&
                         has("'<|assistant|>\n'+message['content']+eos_token}}\n") &&
                         has("{{'<|assistant|>'}}\n");
    const bool by_literal = has("'<|user|>\n'+message['content']+eos_token+'\n'}}") &&
                            has("'<|system|>\n'+message['content']+eos_token+'\n'}}") &&
                            has("'<|assistant|>\n'+message['content']+eos_token+'\n'}}") &&
                            has("{{'<|assistant|>\n'}}");
    if (begins_elsewhere || by_text == by_literal || between != (by_text ? "\n\n\n\n" : "")) {
      return {};
    }
    return t;
  }
  if (has_all({"{{bos_token+'[INST] '+content.strip()+' [/INST]'}}",
               "{{' '+content.strip()+' '+eos_token}}",
               "'<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message['content']"})) {
    if (t.begins || !between.empty() || has("setsystem_message='")) return {};
    t.form = chat_form::llama2;
    return t;
  }
  return {};
}

nlohmann::json parse_settings(std::string_view json, const std::string& origin) {
  auto file = nlohmann::json::parse(json, nullptr, false);
  if (!file.is_object()) throw config_error{fmt::format("{}: expected a JSON object", origin)};
  return file;
}

/// The names of tokens: each a string, or an object with content.
void read_names(const nlohmann::json& file, chat_template& to) {
  const auto read = [&](const char* field, std::string& name) {
    const auto at = file.find(field);
    if (at == file.end()) return;
    const nlohmann::json value = at->is_object() ? at->value("content", nlohmann::json{}) : *at;
    if (value.is_string()) name = value.get<std::string>();
  };
  read("bos_token", to.begin_token);
  read("eos_token", to.end_token);
}

}  // namespace

chat_template read_chat_template(std::string_view jinja, const std::string& origin) {
  std::string between;
  const std::string text = canonical(jinja, between);
  std::optional<chat_template> found = recognise(text, between);
  if (!found) {
    std::string known;
    for (const chat_form f : chat_forms) {
      known += known.empty() ? "" : ", ";
      known += to_string(f);
    }
    throw config_error{fmt::format(
        "{}: the chat template is of no known form: choose one with --chat-template: {}", origin,
        known)};
  }
  return std::move(*found);
}

chat_template read_chat_settings(std::string_view json, const std::string& origin) {
  const nlohmann::json file = parse_settings(json, origin);
  chat_template t;
  const auto own = file.find("chat_template");
  if (own == file.end() || own->is_null()) {
    // A base model's: none.
  } else if (own->is_string()) {
    t = read_chat_template(own->get_ref<const std::string&>(), origin);
  } else if (own->is_array()) {
    const auto named = std::ranges::find_if(*own, [](const nlohmann::json& one) {
      return one.is_object() && one.value("name", nlohmann::json{}) == "default" &&
             one.value("template", nlohmann::json{}).is_string();
    });
    if (named == own->end()) {
      throw config_error{fmt::format(
          "{}: chat_template: none is named default: choose a form with --chat-template", origin)};
    }
    t = read_chat_template((*named)["template"].get_ref<const std::string&>(), origin);
  } else {
    throw config_error{
        fmt::format("{}: chat_template: expected a string or a list of named ones", origin)};
  }
  read_names(file, t);
  return t;
}

chat_template chat_template_of(const std::string& directory, const chat_form* form) {
  const std::string jinja = directory + "/chat_template.jinja";
  const std::string settings = directory + "/tokenizer_config.json";
  std::error_code ignored;
  const bool has_settings = std::filesystem::exists(settings, ignored);
  const std::string json = has_settings ? llama::read_text(settings) : "{}";
  chat_template t;
  if (form != nullptr) {
    t.form = *form;
    t.wraps_tools = t.form == chat_form::llama3_1;
  } else if (std::filesystem::exists(jinja, ignored)) {
    t = read_chat_template(llama::read_text(jinja), jinja);
  } else {
    return read_chat_settings(json, settings);
  }
  read_names(parse_settings(json, settings), t);
  return t;
}

std::string_view to_string(chat_form f) noexcept {
  switch (f) {
    case chat_form::plain:
      return "plain";
    case chat_form::chatml:
      return "chatml";
    case chat_form::qwen3:
      return "qwen3";
    case chat_form::llama2:
      return "llama2";
    case chat_form::llama3:
      return "llama3";
    case chat_form::llama3_1:
      return "llama3.1";
    case chat_form::zephyr:
      return "zephyr";
  }
  return "?";
}

}  // namespace cohort::chat
