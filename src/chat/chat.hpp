// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the messages of a chat to tokens.
#pragma once

#include <cohort/kv/batch/prepared.hpp>

#include <llama/config.hpp>
#include <llama/tokenizer.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "chat_template.hpp"

namespace cohort::chat {

struct message {
  std::string role;
  std::string text;
};

/// Writes chats. What a client writes never becomes a special token. Thread safety: immutable.
class chat_writer {
 public:
  /// @param words Must outlive it.
  /// @throws config_error If the form needs a special token that the tokenizer does not have.
  chat_writer(chat_template how, const llama::tokenizer& words, const llama::llama_config& config);

  [[nodiscard]] chat_form form() const noexcept { return how_.form; }
  /// Why the form cannot hold these messages; empty: it can.
  [[nodiscard]] std::string complaint(std::span<const message> messages) const;
  /// Bytes of text that `write` turns into tokens, at least.
  [[nodiscard]] std::size_t least_bytes(std::span<const message> messages) const noexcept;
  /// The prompt that asks for the assistant's next message.
  /// @param messages Without `complaint`; their roles are system, user, assistant or tool.
  [[nodiscard]] std::vector<kv::token_id> write(std::span<const message> messages) const;
  /// Strings that end an answer.
  [[nodiscard]] std::vector<std::string> stops() const;
  /// Tokens that do.
  [[nodiscard]] std::vector<kv::token_id> stop_tokens() const;

 private:
  chat_template how_;
  const llama::tokenizer& words_;
  kv::token_id begin_ = -1;
  kv::token_id open_ = -1;   // Before a role.
  kv::token_id close_ = -1;  // After it, where there is such a token.
  kv::token_id end_ = -1;    // After a message.
};

}  // namespace cohort::chat
