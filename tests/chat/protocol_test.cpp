// SPDX-License-Identifier: Apache-2.0
#include <chat/protocol.hpp>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <support/complaint.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace cohort::chat::protocol_test {
namespace {
using nlohmann::json;

struct fixture {
  llama::tokenizer words = llama::tokenizer::bytes();
  chat_writer chat{{}, words, {}};
  served_model model{.name = "m",
                     .words = &words,
                     .chat = &chat,
                     .vocabulary = words.size(),
                     .begin_token = 256,
                     .context = 64,
                     .max_choices = 8};

  [[nodiscard]] json logprobs(bool is_chat, llama::sampled what) const {
    const answer_text text{.tokens = {{.what = std::move(what)}}, .finish_reason = "stop"};
    const std::string body =
        write_answer(model, {.is_chat = is_chat, .shows_tokens = true}, {text}, {});
    return json::parse(body)["choices"][0]["logprobs"];
  }
};

TEST_CASE("a prompt is refused by its bytes alone only where no tokens could fit") {
  const fixture f;
  const auto read = [&](bool is_chat, const std::string& text) {
    json asked{{"model", "m"}, {"max_tokens", 1}};
    if (is_chat) {
      asked["messages"] = {{{"role", "user"}, {"content", text}}};
    } else {
      asked["prompt"] = text;
    }
    return read_request(asked.dump(), is_chat, f.model);
  };
  const auto complaint = [&](bool is_chat, const std::string& text) {
    const auto result = read(is_chat, text);
    const auto* e = std::get_if<api_error>(&result);
    REQUIRE(e != nullptr);
    CHECK(e->code == "context_length_exceeded");
    return test::gist(e->message);
  };
  // Of 64 tokens, each of at most 9 bytes, one is left for the answer.
  CHECK(complaint(false, std::string(63 * 9 + 1, 'x')) == "... prompt ... at least 64");
  CHECK(complaint(false, std::string(63 * 9, 'x')) == "... prompt ... 568");
  std::string names;
  for (int i = 0; i < 62; ++i) names += "<|begin|>";
  CHECK(std::holds_alternative<text_request>(read(false, names)));
  // In a chat names are text.
  CHECK(complaint(true, std::string(64, 'x')) == "... prompt ... at least 64");
  CHECK(complaint(true, std::string(63, 'x')) == "... prompt ... 81");
  CHECK(std::holds_alternative<text_request>(read(true, std::string(30, 'x'))));
}

TEST_CASE("the token that was drawn is among the most likely, in completions") {
  const fixture f;
  // Not among the two most likely, and among them.
  CHECK(f.logprobs(false, {{'c', -4}, {{'a', -0.5F}, {'b', -1}}})["top_logprobs"][0] ==
        json{{"a", -0.5}, {"b", -1}, {"c", -4}});
  CHECK(f.logprobs(false, {{'b', -1}, {{'a', -0.5F}, {'b', -1}}})["top_logprobs"][0] ==
        json{{"a", -0.5}, {"b", -1}});
  CHECK(f.logprobs(false, {{'b', -1}, {}})["top_logprobs"][0] == json{{"b", -1}});
}

TEST_CASE("special tokens keep their names, so none hides another") {
  const fixture f;
  const json l = f.logprobs(false, {{257, -0.5F}, {{257, -0.5F}, {258, -1}, {0xFF, -2}}});
  CHECK(l["tokens"][0] == "<|end|>");
  CHECK(l["top_logprobs"][0] == json{{"<|end|>", -0.5}, {"<|pad|>", -1}, {"bytes:\\xff", -2}});
  const json c = f.logprobs(true, {{257, -0.5F}, {{'a', -1}}})["content"][0];
  CHECK(c["token"] == "<|end|>");
  CHECK(c["bytes"].is_null());
  CHECK(c["top_logprobs"][0]["token"] == "a");
  CHECK(c["top_logprobs"][0]["bytes"] == json{97});
}

TEST_CASE("of tokens with one name each has an entry") {
  json file = json::parse(llama::tokenizer::bytes_json());
  file["added_tokens"].push_back({{"id", 259}, {"content", "a"}, {"special", false}});
  fixture f;
  f.words = llama::tokenizer::parse(file.dump(), "t");
  CHECK(f.logprobs(false, {{259, -1}, {{'a', -0.5F}, {261, -2}}})["top_logprobs"][0] ==
        json{{"a", -1}, {"token_id:97", -0.5}, {"token_id:261", -2}});
}

}  // namespace
}  // namespace cohort::chat::protocol_test
