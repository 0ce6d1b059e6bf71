// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the messages of a chat to tokens.
#pragma once

#include <cohort/kv/prepared.hpp>

#include <llm/config.hpp>
#include <llm/tokenizer.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::llm_server {

struct message {
  std::string role;
  std::string text;
};

/// How messages are written for the model.
enum class chat_form : std::uint8_t {
  plain,   ///< "role: text" lines, then "assistant:".
  chatml,  ///< <|im_start|>role, text, <|im_end|>.
  llama3,  ///< <|start_header_id|>role<|end_header_id|>, text, <|eot_id|>.
};

/// Writes chats. What a client writes never becomes a special token. Thread safety: immutable.
class chat_writer {
 public:
  /// @param words Must outlive it.
  /// @throws config_error If the form needs a special token that the tokenizer does not have.
  chat_writer(chat_form form, const llm::tokenizer& words, const llm::llama_config& config);

  [[nodiscard]] chat_form form() const noexcept { return form_; }
  /// The prompt that asks for the assistant's next message.
  [[nodiscard]] std::vector<kv::token_id> write(std::span<const message> messages) const;
  /// Strings that end an answer.
  [[nodiscard]] std::vector<std::string> stops() const;
  /// Tokens that do.
  [[nodiscard]] std::vector<kv::token_id> stop_tokens() const;

 private:
  chat_form form_;
  const llm::tokenizer& words_;
  kv::token_id begin_ = -1;
  kv::token_id open_ = -1;   // Before a role.
  kv::token_id close_ = -1;  // After it, where there is such a token.
  kv::token_id end_ = -1;    // After a message.
};

/// The form that the template in a tokenizer_config.json has; plain if there is none, or one that
/// is not known.  @param origin Named in errors.
/// @throws config_error If it is no JSON object.
[[nodiscard]] chat_form chat_form_in(std::string_view json, const std::string& origin);
/// The same of a model's directory.  @throws config_error If the file cannot be read either.
[[nodiscard]] chat_form chat_form_of(const std::string& directory);
[[nodiscard]] std::string_view to_string(chat_form f) noexcept;

}  // namespace cohort::llm_server
