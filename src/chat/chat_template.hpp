// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which form the chat template of a model's directory has.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::chat {

/// How messages are written for the model.
enum class chat_form : std::uint8_t {
  plain,     ///< "role: text" lines, then "assistant:".
  chatml,    ///< <|im_start|>role, text, <|im_end|>.
  qwen3,     ///< The same, without what the assistant thought before the last question.
  llama2,    ///< [INST] text [/INST] answer </s>, the system's text between <<SYS>> and <</SYS>>.
  llama3,    ///< <|start_header_id|>role<|end_header_id|>, text, <|eot_id|>.
  llama3_1,  ///< The same behind a system message that begins with dates.
  zephyr,    ///< <|role|>, text, </s>.
};
inline constexpr std::array chat_forms{chat_form::plain,  chat_form::chatml, chat_form::qwen3,
                                       chat_form::llama2, chat_form::llama3, chat_form::llama3_1,
                                       chat_form::zephyr};
[[nodiscard]] std::string_view to_string(chat_form f) noexcept;

/// A form, and what a directory says besides.
struct chat_template {
  chat_form form = chat_form::plain;
  bool begins = false;  ///< ChatML and Zephyr: the begin token comes first. The others know.
  std::string begin_token = "<s>";   ///< `bos_token`, of the forms that do not know its name.
  std::string end_token = "</s>";    ///< `eos_token`, likewise.
  std::string system{};              ///< ChatML: where messages begin with another role.
  std::string date = "26 Jul 2024";  ///< Llama 3.1: what it calls today; empty: today.
  /// What a tool says is written in the model's own way: by Llama 3.1 as JSON of the role ipython,
  /// by ChatML between <tool_response> and </tool_response> in a user's message. Else its role is
  /// written as any other's.
  bool wraps_tools = false;
};

/// Reads a Jinja template. It is not run but recognised, by the expressions that write a message
/// and what asks for the answer, so that what the form writes is what the template would.
/// @param origin Named in errors.
/// @throws config_error On one line, if it is of no known form.
[[nodiscard]] chat_template read_chat_template(std::string_view jinja, const std::string& origin);

/// Reads a tokenizer_config.json: its `chat_template`, a string or a list of named ones, of which
/// that named default counts, and its begin and end token. Without a template the form is plain.
/// @throws config_error On one line, if it is no JSON object, or as above.
[[nodiscard]] chat_template read_chat_settings(std::string_view json, const std::string& origin);

/// Of a model's directory: chat_template.jinja, or else what tokenizer_config.json says.
/// @param form Is taken instead of the template's, which is then not read, if not null.
/// @throws config_error As above; if a file cannot be read.
[[nodiscard]] chat_template chat_template_of(const std::string& directory,
                                             const chat_form* form = nullptr);

}  // namespace cohort::chat
