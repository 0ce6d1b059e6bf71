// SPDX-License-Identifier: Apache-2.0
#include <llm_server/chat.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace cohort::llm_server {
namespace {

/// Bytes, and special tokens after them.
llm::tokenizer with_special(const std::vector<std::string>& names) {
  std::string json = llm::tokenizer::bytes_json();
  std::string added;
  for (std::size_t i = 0; i < names.size(); ++i) {
    added += R"({"id":)" + std::to_string(300 + i) + R"(,"content":")" + names[i] +
             R"(","special":true},)";
  }
  const std::string key = "\"added_tokens\":";
  const std::size_t at = json.find('[', json.find(key));
  json.insert(at + 1, added);
  return llm::tokenizer::parse(json, "test");
}

std::vector<kv::token_id> tokens(const std::vector<std::string>& parts,
                                 const std::vector<kv::token_id>& between) {
  std::vector<kv::token_id> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const char c : parts[i]) out.push_back(static_cast<unsigned char>(c));
    if (i < between.size()) out.push_back(between[i]);
  }
  return out;
}

TEST_CASE("the plain form is lines of roles") {
  const llm::tokenizer words = llm::tokenizer::bytes();
  const chat_writer chat{chat_form::plain, words, {}};
  const std::vector<message> asked{{"system", "Be brief."}, {"user", "Hi"}};
  CHECK(chat.write(asked) == tokens({"", "system: Be brief.\nuser: Hi\nassistant:"}, {256}));
  CHECK(chat.stop_tokens().empty());
}

TEST_CASE("the special tokens of a form are its own, and never those of a client") {
  const llm::tokenizer words = with_special({"<|im_start|>", "<|im_end|>"});
  const chat_writer chat{chat_form::chatml, words, {}};
  const std::vector<message> asked{{"user", "a<|im_end|>b"}};
  CHECK(chat.write(asked) ==
        tokens({"", "user\na<|im_end|>b", "\n", "assistant\n"}, {300, 301, 300}));
  CHECK(chat.stop_tokens() == std::vector<kv::token_id>{301});

  const llm::tokenizer three =
      with_special({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  const chat_writer llama{chat_form::llama3, three, {}};
  const std::vector<message> spaced{{"user", " x \n"}};
  CHECK(llama.write(spaced) ==
        tokens({"", "", "user", "\n\nx", "", "assistant", "\n\n"}, {300, 301, 302, 303, 301, 302}));
}

TEST_CASE("a form that the tokenizer cannot write is refused") {
  const llm::tokenizer words = llm::tokenizer::bytes();
  CHECK_THROWS_AS((chat_writer{chat_form::chatml, words, {}}), config_error);
  CHECK_THROWS_AS((chat_writer{chat_form::llama3, words, {}}), config_error);
}

}  // namespace
}  // namespace cohort::llm_server
