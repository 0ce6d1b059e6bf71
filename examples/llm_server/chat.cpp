// SPDX-License-Identifier: Apache-2.0
#include "chat.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <llm/weights.hpp>
#include <nlohmann/json.hpp>

namespace cohort::llm_server {

chat_writer::chat_writer(chat_form form, const llm::tokenizer& words,
                         const llm::llama_config& config)
    : form_{form}, words_{words} {
  const auto special = [&](std::string_view name) {
    const kv::token_id t = words.find_special(name);
    if (t < 0) {
      throw config_error{fmt::format("chat template {}: the tokenizer has no {}", to_string(form),
                                     std::string{name})};
    }
    return t;
  };
  switch (form) {
    case chat_form::plain:
      begin_ = config.begin_token;
      break;
    case chat_form::chatml:
      open_ = special("<|im_start|>");
      end_ = special("<|im_end|>");
      break;
    case chat_form::llama3:
      begin_ = special("<|begin_of_text|>");
      open_ = special("<|start_header_id|>");
      close_ = special("<|end_header_id|>");
      end_ = special("<|eot_id|>");
      break;
  }
}

std::vector<kv::token_id> chat_writer::write(std::span<const message> messages) const {
  using place = llm::tokenizer::place;
  std::vector<kv::token_id> out;
  std::string text;  // Between special tokens it is encoded as one.
  place at = place::begin;
  const auto flush = [&] {
    const auto tokens = words_.encode(text, false, at);
    out.insert(out.end(), tokens.begin(), tokens.end());
    text.clear();
  };
  const auto put = [&](kv::token_id t) {
    if (t < 0) return;
    flush();
    out.push_back(t);
    at = place::behind_special;
  };
  if (begin_ >= 0) out.push_back(begin_);  // Text behind it is still the first.
  for (const message& m : messages) {
    put(open_);
    switch (form_) {
      case chat_form::plain:
        text += fmt::format("{}: {}\n", m.role, m.text);
        break;
      case chat_form::chatml:
        text += fmt::format("{}\n{}", m.role, m.text);
        put(end_);
        text += "\n";
        break;
      case chat_form::llama3: {
        text += m.role;
        put(close_);
        // The template trims what it is given.
        const std::size_t first = m.text.find_first_not_of(" \t\r\n");
        const std::size_t last = m.text.find_last_not_of(" \t\r\n");
        text += "\n\n" + (first == std::string::npos ? "" : m.text.substr(first, last - first + 1));
        put(end_);
        break;
      }
    }
  }
  put(open_);
  text += form_ == chat_form::plain ? "assistant:" : "assistant";
  put(close_);
  if (form_ == chat_form::chatml) text += "\n";
  if (form_ == chat_form::llama3) text += "\n\n";
  flush();
  return out;
}

std::vector<std::string> chat_writer::stops() const {
  if (form_ == chat_form::plain) return {"\nuser:"};
  return {};
}
std::vector<kv::token_id> chat_writer::stop_tokens() const {
  if (end_ < 0) return {};
  return {end_};
}

chat_form chat_form_in(std::string_view json, const std::string& origin) {
  const auto file = nlohmann::json::parse(json, nullptr, false);
  if (!file.is_object()) throw config_error{origin + ": expected a JSON object"};
  const auto found = file.find("chat_template");
  if (found == file.end() || !found->is_string()) return chat_form::plain;
  const auto& text = found->get_ref<const std::string&>();
  if (text.find("<|start_header_id|>") != std::string::npos) return chat_form::llama3;
  if (text.find("<|im_start|>") != std::string::npos) return chat_form::chatml;
  return chat_form::plain;
}

chat_form chat_form_of(const std::string& directory) {
  const std::string path = directory + "/tokenizer_config.json";
  if (!std::filesystem::exists(path)) return chat_form::plain;
  return chat_form_in(llm::read_text(path), path);
}

std::string_view to_string(chat_form f) noexcept {
  switch (f) {
    case chat_form::plain:
      return "plain";
    case chat_form::chatml:
      return "chatml";
    case chat_form::llama3:
      return "llama3";
  }
  return "?";
}

}  // namespace cohort::llm_server
