// SPDX-License-Identifier: Apache-2.0
/// @file
/// The OpenAI protocol without its network: bodies of requests in, bodies of answers out.
#pragma once

#include <cohort/kv/batch/prepared.hpp>

#include <llama/sampler.hpp>
#include <llama/tokenizer.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chat.hpp"
#include "text_service.hpp"

namespace cohort::chat {

/// An answer that is an error.
struct api_error {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param{};  ///< The field that is wrong; empty: none.
  std::string code{};   ///< Empty: none.
};

/// What a client asked for, checked: every value is in range and the text fits the context.
struct text_request {
  bool is_chat = false;
  std::vector<std::vector<kv::token_id>> prompts{};  ///< At least one, none empty.
  std::uint32_t n = 1;                               ///< Texts of each prompt.
  std::uint32_t max_new = 16;
  llama::sampling how{};
  bool has_seed = false;
  std::vector<std::string> stops{};
  std::vector<kv::token_id> stop_tokens{};  ///< Besides the model's; `ignores_end` or not.
  std::uint8_t priority = 128;              ///< 0 is the most important.
  bool ignores_end = false;                 ///< The model's stop tokens do not end a text.
  bool shows_tokens = false;                ///< Log-probabilities were asked for.
  bool streams = false;
  bool includes_usage = false;  ///< In a stream.
};

/// What requests are checked against. The pointers must outlive it.
struct served_model {
  std::string name;
  std::int64_t created = 0;  ///< Seconds since 1970.
  const llama::tokenizer* words = nullptr;
  const chat_writer* chat = nullptr;
  std::size_t vocabulary = 0;
  kv::token_id begin_token = -1;  ///< What an empty prompt becomes; below 0: token 0.
  std::vector<kv::token_id> end_tokens{};
  std::uint32_t context = 0;
  std::uint32_t max_choices = 128;  ///< Of one request.
  bool is_lenient = false;          ///< Fields without a meaning here are ignored, not refused.
};

/// Reads the body of POST /v1/completions or, `is_chat`, /v1/chat/completions.
[[nodiscard]] std::variant<text_request, api_error> read_request(std::string_view body,
                                                                 bool is_chat,
                                                                 const served_model& model);

/// {"error":{"message","type","param","code"}}.
[[nodiscard]] std::string write_error(const api_error& e);
/// The error of an HTTP status.
[[nodiscard]] api_error error_of(int status, std::string message);

/// GET /v1/models and /v1/models/NAME.
[[nodiscard]] std::string write_models(const served_model& model);
[[nodiscard]] std::string write_model(const served_model& model);

struct token_usage {
  std::uint64_t prompt = 0;
  std::uint64_t completion = 0;
};

/// What the answers to one request have in common.
struct answer_head {
  std::string id{};
  std::int64_t created = 0;
  bool is_chat = false;
  bool shows_tokens = false;
  bool includes_usage = false;
};

/// One text that is complete.
struct answer_text {
  std::string text{};
  std::vector<shown_token> tokens{};
  std::string_view finish_reason{};
};

[[nodiscard]] std::string write_answer(const served_model& model, const answer_head& head,
                                       const std::vector<answer_text>& texts,
                                       const token_usage& usage);

/// Events of a stream, each `data: {...}` and an empty line.
/// The first of a choice of a chat: its role.
[[nodiscard]] std::string write_first(const served_model& model, const answer_head& head,
                                      std::uint32_t choice);
/// More of a choice's text, or its end if `finish_reason` is not empty.
[[nodiscard]] std::string write_more(const served_model& model, const answer_head& head,
                                     std::uint32_t choice, const answer_text& more);
[[nodiscard]] std::string write_usage(const served_model& model, const answer_head& head,
                                      const token_usage& usage);
[[nodiscard]] std::string write_failure(const api_error& e);
inline constexpr std::string_view last_event = "data: [DONE]\n\n";

/// How the protocol names an end; empty if it has no name for it.
[[nodiscard]] std::string_view finish_name(kv::finish_reason why) noexcept;

}  // namespace cohort::chat
