// SPDX-License-Identifier: Apache-2.0
#include "chat.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <llama/unicode.hpp>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace cohort::chat {
namespace {

/// As the templates' `strip` and `trim`, which are Python's: U+001C to U+001F are blank, too, and
/// U+FEFF is not.
std::string_view trimmed(std::string_view text) noexcept {
  const auto is_blank = [](char32_t c) { return llama::is_space(c) || (c >= 0x1C && c <= 0x1F); };
  while (!text.empty()) {
    const llama::code_point c = llama::next_code_point(text);
    if (!is_blank(c.value)) break;
    text.remove_prefix(c.length);
  }
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 &&
           (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) {
      --at;
    }
    const llama::code_point c = llama::next_code_point(text.substr(at));
    if (c.length != text.size() - at || !is_blank(c.value)) break;
    text.remove_suffix(c.length);
  }
  return text;
}

/// What an assistant said behind its thoughts, and these: as Qwen 3's template parts them.
struct thought {
  std::string_view reasoning;
  std::string_view content;
};
std::string_view without_first_lines(std::string_view text) noexcept {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
thought part(std::string_view text) noexcept {
  constexpr std::string_view begin = "<think>";
  constexpr std::string_view end = "</think>";
  const std::size_t first = text.find(end);
  if (first == std::string_view::npos) return {{}, text};
  const auto strip_back = [](std::string_view t) {
    return t.substr(0, t.find_last_not_of('\n') + 1);
  };
  std::string_view reasoning = strip_back(text.substr(0, first));
  if (const std::size_t at = reasoning.rfind(begin); at != std::string_view::npos) {
    reasoning.remove_prefix(at + begin.size());
  }
  return {strip_back(without_first_lines(reasoning)),
          without_first_lines(text.substr(text.rfind(end) + end.size()))};
}

/// "26 Jul 2024".
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%d %b %Y", &parts)};
}

}  // namespace

chat_writer::chat_writer(chat_template how, const llama::tokenizer& words,
                         const llama::llama_config& config)
    : how_{std::move(how)}, words_{words} {
  const auto special = [&](std::string_view name) {
    const kv::token_id t = words.find_special(name);
    if (t < 0) {
      throw config_error{fmt::format("chat template {}: the tokenizer has no {}",
                                     to_string(how_.form), std::string{name})};
    }
    return t;
  };
  switch (how_.form) {
    case chat_form::plain:
      begin_ = config.begin_token;
      break;
    case chat_form::chatml:
      if (how_.begins) begin_ = special(how_.begin_token);
      open_ = special("<|im_start|>");
      end_ = special("<|im_end|>");
      break;
    case chat_form::qwen3:
      open_ = special("<|im_start|>");
      end_ = special("<|im_end|>");
      break;
    case chat_form::llama2:
      open_ = special(how_.begin_token);
      end_ = special(how_.end_token);
      break;
    case chat_form::llama3:
    case chat_form::llama3_1:
      begin_ = special("<|begin_of_text|>");
      open_ = special("<|start_header_id|>");
      close_ = special("<|end_header_id|>");
      end_ = special("<|eot_id|>");
      break;
    case chat_form::zephyr:
      if (how_.begins) begin_ = special(how_.begin_token);
      end_ = special(how_.end_token);
      break;
  }
}

std::string chat_writer::complaint(std::span<const message> messages) const {
  if (how_.form == chat_form::zephyr) {
    const bool has_tool = std::ranges::find(messages, "tool", &message::role) != messages.end();
    return has_tool ? "the model's chat template has no messages of tools" : "";
  }
  if (how_.form != chat_form::llama2) return {};
  if (!messages.empty() && messages[0].role == "system") messages = messages.subspan(1);
  bool is_good = !messages.empty();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    is_good = is_good && messages[i].role == (i % 2 == 0 ? "user" : "assistant");
  }
  if (is_good) return {};
  return "the model's chat template takes at most one system message first, then user and "
         "assistant in turn";
}

std::size_t chat_writer::least_bytes(std::span<const message> messages) const noexcept {
  const bool parts = how_.form == chat_form::qwen3;  // Thoughts may be left out.
  std::size_t bytes = 0;
  for (const message& m : messages) {
    const bool may_think = parts && m.role == "assistant";
    bytes += trimmed(may_think ? part(m.text).content : m.text).size();
  }
  return bytes;
}

std::vector<kv::token_id> chat_writer::write(std::span<const message> messages) const {
  using place = llama::tokenizer::place;
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
  const auto write_header = [&](std::string_view role) {
    put(open_);
    text += role;
    put(close_);
    text += "\n\n";
  };
  const auto write_chatml = [&](std::string_view role, std::string_view content) {
    put(open_);
    text += fmt::format("{}\n{}", role, content);
    put(end_);
    text += "\n";
  };

  if (begin_ >= 0) out.push_back(begin_);  // Text behind it is still the first.
  std::string_view system;
  const bool has_system = !messages.empty() && messages[0].role == "system";
  switch (how_.form) {
    case chat_form::chatml:
      if (!has_system && !how_.system.empty()) write_chatml("system", how_.system);
      break;
    case chat_form::llama2:
    case chat_form::llama3_1:
      if (!has_system) break;
      system = messages[0].text;
      messages = messages.subspan(1);
      break;
    default:
      break;
  }
  if (how_.form == chat_form::llama3_1) {
    write_header("system");
    text += fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n{}",
                        how_.date.empty() ? today() : how_.date, trimmed(system));
    put(end_);
  }
  // Qwen 3: behind the last question the assistant's thoughts are kept.
  std::size_t question = messages.empty() ? 0 : messages.size() - 1;
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& asked = messages[i].text;
    if (messages[i].role != "user" ||
        (asked.starts_with("<tool_response>") && asked.ends_with("</tool_response>"))) {
      continue;
    }
    question = i;
    break;
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const message& m = messages[i];
    switch (how_.form) {
      case chat_form::plain:
        text += fmt::format("{}: {}\n", m.role, m.text);
        break;
      case chat_form::qwen3:
        if (m.role == "assistant") {
          const auto [reasoning, content] = part(m.text);
          const bool thinks = i > question && (i + 1 == messages.size() || !reasoning.empty());
          write_chatml(m.role, thinks ? fmt::format("<think>\n{}\n</think>\n\n{}", reasoning,
                                                    without_first_lines(content))
                                      : std::string{content});
          break;
        }
        [[fallthrough]];
      case chat_form::chatml:
        if (m.role != "tool" || (how_.form == chat_form::chatml && !how_.wraps_tools)) {
          write_chatml(m.role, m.text);
          break;
        }
        // Neighbours share a message.
        if (i == 0 || messages[i - 1].role != "tool") {
          put(open_);
          text += "user";
        }
        text += fmt::format("\n<tool_response>\n{}\n</tool_response>", m.text);
        if (i + 1 == messages.size() || messages[i + 1].role != "tool") {
          put(end_);
          text += "\n";
        }
        break;
      case chat_form::llama2:
        if (m.role == "user") {
          const std::string content =
              i == 0 && has_system ? fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", system, m.text)
                                   : m.text;
          put(open_);
          text += fmt::format("[INST] {} [/INST]", trimmed(content));
        } else {
          text += fmt::format(" {} ", trimmed(m.text));
          put(end_);
        }
        break;
      case chat_form::llama3:
      case chat_form::llama3_1:
        if (m.role == "tool" && how_.wraps_tools) {
          write_header("ipython");
          text +=
              nlohmann::json(m.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        } else {
          write_header(m.role);
          text += trimmed(m.text);
        }
        put(end_);
        break;
      case chat_form::zephyr:
        text += fmt::format("<|{}|>\n{}", m.role, m.text);
        put(end_);
        text += "\n";
        break;
    }
  }
  switch (how_.form) {
    case chat_form::plain:
      text += "assistant:";
      break;
    case chat_form::chatml:
    case chat_form::qwen3:
      put(open_);
      text += "assistant\n";
      break;
    case chat_form::llama2:
      break;  // [/INST] asks.
    case chat_form::llama3:
    case chat_form::llama3_1:
      write_header("assistant");
      break;
    case chat_form::zephyr:
      text += "<|assistant|>\n";
      break;
  }
  flush();
  return out;
}

std::vector<std::string> chat_writer::stops() const {
  if (how_.form == chat_form::plain) return {"\nuser:"};
  return {};
}
std::vector<kv::token_id> chat_writer::stop_tokens() const {
  if (end_ < 0) return {};
  return {end_};
}

}  // namespace cohort::chat
