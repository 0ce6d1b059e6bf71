// SPDX-License-Identifier: Apache-2.0
// Any bytes are the body of a completion or a chat (by the first byte) that the server can run as
// it is, or an error of the protocol.
#include <chat/chat.hpp>
#include <chat/protocol.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

namespace {

void require(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort::chat;
  static const auto words = cohort::llama::tokenizer::bytes();
  static const chat_writer chat{chat_template{}, words, {}};
  static const served_model model{.name = "m",
                                  .words = &words,
                                  .chat = &chat,
                                  .vocabulary = words.size(),
                                  .begin_token = 256,
                                  .end_tokens = {257},
                                  .context = 200,
                                  .max_choices = 8};
  if (size == 0) return 0;
  const bool is_chat = data[0] % 2 == 1;
  const std::string_view body{reinterpret_cast<const char*>(data + 1), size - 1};
  const auto read = read_request(body, is_chat, model);
  if (const auto* e = std::get_if<api_error>(&read)) {
    require(e->status == 400 || e->status == 404);
    require(!e->message.empty());
    const auto written = nlohmann::json::parse(write_error(*e));
    require(written["error"]["message"].is_string());
    return 0;
  }
  const auto& r = std::get<text_request>(read);
  r.how.check();
  require(r.is_chat == is_chat);
  require(!r.prompts.empty() && r.n >= 1 && r.prompts.size() * r.n <= model.max_choices);
  require(r.max_new >= 1);
  for (const auto& p : r.prompts) {
    require(!p.empty() && p.size() + r.max_new <= model.context);
    for (const auto t : p) require(t >= 0 && static_cast<std::size_t>(t) < model.vocabulary);
  }
  for (const std::string& s : r.stops) require(!s.empty());
  return 0;
}
