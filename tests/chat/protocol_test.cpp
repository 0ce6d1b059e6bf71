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

/// What a body with one more field is answered: the field that is refused, or nothing.
std::string refused(const served_model& m, bool is_chat, const json& more) {
  json asked{{"model", "m"}, {"max_tokens", 1}};
  if (is_chat) {
    asked["messages"] = {{{"role", "user"}, {"content", "x"}}};
  } else {
    asked["prompt"] = "x";
  }
  asked.update(more);
  const auto result = read_request(asked.dump(), is_chat, m);
  const auto* e = std::get_if<api_error>(&result);
  if (e == nullptr) return "";
  CHECK(e->status == 400);
  CHECK(e->message.starts_with(e->param + ": "));
  return e->param;
}

TEST_CASE("a field is read, says nothing of the answer, or is refused by its name") {
  fixture f;
  // What clients send as a matter of course.
  const json taken{{"user", "u"},
                   {"metadata", {{"a", "b"}}},
                   {"safety_identifier", "s"},
                   {"prompt_cache_key", "k"},
                   {"parallel_tool_calls", true},
                   {"cache_prompt", true},
                   {"store", true},
                   {"service_tier", "flex"},
                   {"reasoning_effort", "high"},
                   {"verbosity", "low"},
                   {"seed", 5},
                   {"n", 1},
                   {"stream", true},
                   {"stream_options", {{"include_usage", true}, {"include_obfuscation", true}}},
                   {"response_format", {{"type", "text"}}},
                   {"repeat_penalty", 1.0},
                   {"grammar", ""},
                   {"return_token_ids", false},
                   {"best_of", 1},
                   {"whatever", nullptr}};
  CHECK(refused(f.model, true, taken).empty());
  CHECK(refused(f.model, false, taken).empty());
  CHECK(refused(f.model, true, {{"logprobs", false}}).empty());
  // What would change the answer if it were not ignored.
  const std::pair<const char*, json> changing[] = {{"repeat_penalty", 1.1},
                                                   {"n_predict", 8},
                                                   {"grammar", "root ::= x"},
                                                   {"return_token_ids", true},
                                                   {"temprature", 0.5},
                                                   {"max_token", 5},
                                                   {"response_format", {{"type", "json_object"}}},
                                                   {"best_of", 2},
                                                   {"allowed_token_ids", {1}},
                                                   {"", 1}};
  for (const auto& [name, value] : changing) {
    CAPTURE(name);
    for (const bool is_chat : {false, true}) {
      CHECK(refused(f.model, is_chat, {{name, value}}) == name);
    }
  }
  // Fields of the other path, or of another place.
  CHECK(refused(f.model, true, {{"prompt", "x"}}) == "prompt");
  CHECK(refused(f.model, false, {{"messages", json::array()}}) == "messages");
  CHECK(refused(f.model, false, {{"top_logprobs", 1}}) == "top_logprobs");
  const json options{{"stream", true}, {"stream_options", {{"include_usages", true}}}};
  CHECK(refused(f.model, true, options) == "stream_options.include_usages");
  // A name is cut between two characters, and what is wrong with its type is said.
  const std::string long_name = std::string(99, 'x') + "\u20ac" + std::string(1000, 'y');
  CHECK(refused(f.model, true, {{long_name, 1}}) == std::string(99, 'x'));
  CHECK(refused(f.model, true, {{"user", 5}}) == "user");

  f.model.is_lenient = true;
  CHECK(refused(f.model, true, {{"temprature", 0.5}, {"n_predict", 8}}).empty());
  CHECK(refused(f.model, true, options).empty());
  CHECK(refused(f.model, true, {{"repeat_penalty", 1.1}}) == "repeat_penalty");
}

TEST_CASE("whole numbers may have a point, and -1 is all tokens for top_k") {
  const fixture f;
  const auto read = [&](const json& more) {
    json asked{{"model", "m"}, {"prompt", "x"}};
    asked.update(more);
    return std::get<text_request>(read_request(asked.dump(), false, f.model));
  };
  CHECK(read({{"max_tokens", 5.0}}).max_new == 5);
  CHECK(read({{"n", 2.0}}).n == 2);
  CHECK(read({{"top_k", -1}}).how.top_k == 0);
  CHECK(read({{"top_k", 3.0}}).how.top_k == 3);
  CHECK(read({{"seed", -9.0}}).how.seed == static_cast<std::uint64_t>(-9));
  CHECK(refused(f.model, false, {{"max_tokens", 5.5}}) == "max_tokens");
  CHECK(refused(f.model, false, {{"max_tokens", 0.0}}) == "max_tokens");
  CHECK(refused(f.model, false, {{"top_k", -2}}) == "top_k");
  for (const double huge : {1e300, -1e300, 0x1p63}) {
    CHECK(refused(f.model, false, {{"seed", huge}}) == "seed");
  }
}

TEST_CASE("tools that may not be called are as good as none, and their messages are text") {
  const fixture f;
  const json tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  CHECK(refused(f.model, true, {{"tools", tools}, {"tool_choice", "none"}}).empty());
  CHECK(refused(f.model, true, {{"functions", tools}, {"function_call", "none"}}).empty());
  CHECK(refused(f.model, true, {{"tools", tools}}) == "tools");
  CHECK(refused(f.model, true, {{"tools", tools}, {"tool_choice", "auto"}}) == "tools");
  CHECK(refused(f.model, true, {{"tools", 5}, {"tool_choice", "none"}}) == "tools");
  const auto messages = [](const json& more) {
    return json{{"messages", {{{"role", "user"}, {"content", "x"}}, more}}};
  };
  const auto prompt = [&](const json& more) {
    json asked{{"model", "m"}, {"max_tokens", 1}};
    asked.update(messages(more));
    const auto r = std::get<text_request>(read_request(asked.dump(), true, f.model));
    return f.words.decode(r.prompts[0]);
  };
  CHECK(prompt({{"role", "tool"}, {"tool_call_id", "1"}, {"content", "5"}}) ==
        "user: x\ntool: 5\nassistant:");
  CHECK(prompt({{"role", "assistant"}, {"content", nullptr}}) ==
        "user: x\nassistant: \nassistant:");
  CHECK(prompt({{"role", "assistant"}}) == "user: x\nassistant: \nassistant:");
  for (const char* role : {"user", "system", "tool"}) {
    CHECK(refused(f.model, true, messages({{"role", role}, {"content", nullptr}})) ==
          "messages[1].content");
  }
  CHECK(refused(f.model, true,
                messages({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", tools}})) ==
        "messages[1].tool_calls");
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
