// SPDX-License-Identifier: Apache-2.0
// Models are trained here, by the library's own trainer; what the library encodes and decodes is
// the truth.
#include <llama/sentence_pieces.hpp>

#include <llama/tokenizer.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include <llama/sampler.hpp>
#include <llama/unicode.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::sentence_pieces_test {
namespace {
using ids = std::vector<kv::token_id>;
using sentencepiece::SentencePieceProcessor;

struct sentences final : sentencepiece::SentenceIterator {
  std::vector<std::string> all;
  std::size_t at = 0;
  [[nodiscard]] bool done() const override { return at >= all.size(); }
  void Next() override { ++at; }
  [[nodiscard]] const std::string& value() const override { return all[at]; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }
};

using settings = std::unordered_map<std::string, std::string>;

std::string train(const settings& more = {}) {
  sentences text;
  for (int i = 0; i < 200; ++i) {
    const std::string n = std::to_string(i * 7919);
    text.all.push_back("the quick brown fox jumps over the lazy dog number " + n);
    text.all.push_back("she sells sea shells, and the others watch: d\xC3\xA9j\xC3\xA0 vu " + n);
  }
  settings all{{"model_type", "bpe"},
               {"vocab_size", "420"},
               {"byte_fallback", "true"},
               {"normalization_rule_name", "identity"},
               {"remove_extra_whitespaces", "false"},
               {"user_defined_symbols", "<sep>"},
               {"hard_vocab_limit", "false"},
               {"num_threads", "1"},
               {"minloglevel", "2"}};
  for (const auto& [name, value] : more) all[name] = value;
  std::string model;
  REQUIRE(sentencepiece::SentencePieceTrainer::Train(all, &text, &model).ok());
  return model;
}

/// Words that the model knows, others, spaces, other alphabets; any character but U+2581.
std::string random_text(test::random_source& random) {
  std::string out;
  for (std::size_t n = random.below(12U); n > 0; --n) {
    switch (random.below(7)) {
      case 0:
        out += std::string(1 + random.below(3U), ' ');
        break;
      case 1:
        out += "the";
        break;
      case 2:
        out += " sea shells";
        break;
      case 3:
        out += "<sep>";
        break;
      case 4:
        out += "\n\t";
        break;
      case 5: {
        char32_t c = U'\u2581';
        while (c == U'\u2581' || (c >= 0xD800 && c <= 0xDFFF)) {
          c = static_cast<char32_t>(1 + random.below(random.one_in(2) ? 0x7FFU : 0x10FFFEU));
        }
        out += to_utf8(c);
        break;
      }
      default:
        out += static_cast<char>('a' + random.below(26));
    }
  }
  return out;
}

/// With U+FFFD for each byte that is no UTF-8, as the library decodes.
std::string repaired(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const code_point c = next_code_point(bytes);
    out += to_utf8(c.value);
    bytes.remove_prefix(c.length);
  }
  return out;
}

TEST_CASE("pieces are those of the library, and so is the text of any pieces") {
  const settings kinds[] = {{},
                            {{"model_type", "unigram"}, {"vocab_size", "380"}},
                            {{"add_dummy_prefix", "false"}},
                            {{"remove_extra_whitespaces", "true"}},
                            {{"normalization_rule_name", "nmt_nfkc"}},
                            {{"byte_fallback", "false"}, {"vocab_size", "200"}},
                            {{"bos_id", "-1"}}};
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    CAPTURE(kind);
    const std::string model = train(kinds[kind]);
    SentencePieceProcessor truth;
    REQUIRE(truth.LoadFromSerializedProto(model).ok());
    const tokenizer t = tokenizer::parse_pieces(model, "m");
    REQUIRE(t.size() == static_cast<std::size_t>(truth.GetPieceSize()));
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      CAPTURE(seed);
      test::random_source random{seed};
      const std::string text = random_text(random);
      std::vector<int> expected;
      REQUIRE(truth.Encode(text, &expected).ok());
      REQUIRE(t.encode(text, false) == ids(expected.begin(), expected.end()));
      if (truth.bos_id() >= 0) expected.insert(expected.begin(), truth.bos_id());
      REQUIRE(t.encode(text) == ids(expected.begin(), expected.end()));
      if (kind == 0) REQUIRE(t.decode(t.encode(text)) == text);

      // What a model may say, likely or not. The library cuts characters at control pieces within.
      std::vector<int> any(random.below(20U));
      for (int& i : any) {
        i = static_cast<int>(random.below(t.size()));
        if (truth.IsControl(i)) i = truth.unk_id();
        if (random.one_in(4)) i = truth.PieceToId("\xE2\x96\x81");
      }
      if (truth.bos_id() >= 0 && random.one_in(2)) any.insert(any.begin(), truth.bos_id());
      std::string said;
      REQUIRE(truth.Decode(any, &said).ok());
      REQUIRE(repaired(t.decode(ids(any.begin(), any.end()))) == said);
    }
  }
}

TEST_CASE("streamed text joins to the whole, and begins behind a prompt as it would in it") {
  const tokenizer t = tokenizer::parse_pieces(train(), "m");
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::string text = random_text(random);
    const ids all = t.encode(text);
    const std::size_t cut = random.below(all.size() + 1);
    const ids prompt(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(cut));
    std::string out = t.decode(prompt);
    token_reader reader{t, prompt};
    stop_matcher whole_characters;
    std::string streamed;
    for (std::size_t i = cut; i < all.size(); ++i) {
      const std::string part = whole_characters.push(reader.next(all[i]));
      // A part never ends within a character, unless the prompt did.
      if (repaired(out) == out) REQUIRE(repaired(part) == part);
      streamed += part;
    }
    REQUIRE(out + streamed + whole_characters.finish() == text);
  }
}

TEST_CASE("the first space of a text is the model's, those of its middle are its own") {
  const tokenizer t = tokenizer::parse_pieces(train(), "m");
  const ids the = t.encode("the", false);
  REQUIRE(the.size() == 1);  // "_the".
  CHECK(t.bytes_of(the[0]) == " the");
  CHECK(t.decode(the) == "the");
  CHECK(t.decode({the[0], the[0]}) == "the the");
  // Behind nothing but <s> the text has not begun; behind a word it has.
  token_reader fresh{t, ids{1}};
  CHECK(fresh.next(the[0]) == "the");
  CHECK(fresh.next(the[0]) == " the");
  token_reader behind{t, the};
  CHECK(behind.next(the[0]) == " the");
  CHECK(t.find_special("<s>") == 1);
  CHECK(t.find_special("</s>") == 2);
  CHECK(t.encode("</s>", false).size() > 1);  // What a client writes is text,
  CHECK(t.encode("</s>") == ids{1, 2});       // unless it may write special tokens.
  CHECK(t.encode("the", false, tokenizer::place::behind_special) == the);
}

TEST_CASE("tokenizer_config.json adds tokens, and says where spaces go") {
  const std::string model = train();
  const auto with = [&](const std::string& json) {
    return tokenizer::parse_pieces(model, "m", piece_settings::parse(json, "c"));
  };
  const tokenizer plain = tokenizer::parse_pieces(model, "m");
  const auto more = static_cast<kv::token_id>(plain.size());
  const std::string added = R"({"legacy": false, "add_bos_token": false, "added_tokens_decoder": {
    "1": {"content": "<s>", "special": true},
    ")" + std::to_string(more) +
                            R"(": {"content": "<|im_end|>", "special": true},
    ")" + std::to_string(more + 1) +
                            R"(": {"content": "tool", "special": false}}})";
  const tokenizer t = with(added);
  CHECK(t.size() == plain.size() + 2);
  CHECK(t.find_special("<|im_end|>") == more);
  const ids the = plain.encode("the", false);
  CHECK(t.encode("the") == the);
  const ids bare = t.encode("the", false, tokenizer::place::behind_special);
  CHECK(bare != the);
  CHECK(t.decode(bare) == "the");
  ids expected = the;
  expected.push_back(more);
  expected.insert(expected.end(), bare.begin(), bare.end());
  CHECK(t.encode("the<|im_end|>the") == expected);
  CHECK(t.encode("tool", false) == ids{more + 1});
  CHECK(t.bytes_of(more + 1) == "tool");
  CHECK(with("{}").encode("the").front() == 1);
  for (const char* bad :
       {"[]", "{", R"({"legacy": 1})", R"({"add_bos_token": "yes"})",
        R"({"added_tokens_decoder": []})", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
        R"({"added_tokens_decoder": {"1": {"content": ""}}})",
        R"({"added_tokens_decoder": {"-1": {"content": "a"}}})",
        R"({"added_tokens_decoder": {"99999999": {"content": "a"}}})"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(with(bad), config_error);
  }
}

TEST_CASE("damaged models are refused on one line, or read as something else") {
  const std::string good = train();
  int refused = 0;
  const auto attempt = [&](const std::string& model) {
    try {
      const tokenizer t = tokenizer::parse_pieces(model, "m.model");
      (void)t.decode(t.encode("the sea \xF0\x9F\x98\x80"));
    } catch (const config_error& e) {
      const std::string what = e.what();
      REQUIRE(what.starts_with("m.model: not a SentencePiece model: "));
      REQUIRE(what.find('\n') == std::string::npos);
      ++refused;
    }
  };
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::string model = good;
    if (random.one_in(3)) model.resize(random.below(model.size()));
    for (std::size_t n = random.below(4U); n > 0 && !model.empty(); --n) {
      model[random.below(model.size())] =
          static_cast<char>(static_cast<unsigned char>(random.below(256U)));
    }
    attempt(model);
  }
  attempt("");
  attempt("{}");
  attempt(std::string(1000, '\xFF'));
  CHECK(refused > 100);
}

TEST_CASE("the small model that needs no trainer is a whole one") {
  const tokenizer t = tokenizer::parse_pieces(small_pieces_model(), "m");
  CHECK(t.encode("the hand").size() == 5);  // <s>, "_the", "_h", "a" and "nd".
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::string text = random_text(random);
    REQUIRE(t.decode(t.encode(text)) == text);
  }
}

TEST_CASE("a directory's tokenizer.json wins, unless it was made from its tokenizer.model") {
  const auto where =
      std::filesystem::temp_directory_path() / ("cohort-pieces-" + std::to_string(::getpid()));
  std::filesystem::create_directories(where);
  const std::string directory = where.string();
  const auto put = [&](const char* name, const std::string& text) {
    std::ofstream{directory + "/" + name, std::ios::binary} << text;
  };
  const auto complaint = [&] {
    return test::gist_of<config_error>([&] { (void)tokenizer::open(directory); });
  };
  CHECK(complaint() == directory + ": ... tokenizer.json ... tokenizer.model ...");
  const std::string model = small_pieces_model();
  put("tokenizer.model", model);
  const std::size_t pieces = tokenizer::parse_pieces(model, "m").size();
  CHECK(tokenizer::open(directory).size() == pieces);
  put("tokenizer_config.json", R"({"add_bos_token": false})");
  CHECK(tokenizer::open(directory).encode("").empty());
  put("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true}})");
  CHECK(tokenizer::open(directory).size() == pieces);
  put("tokenizer.json", tokenizer::bytes_json());
  CHECK(tokenizer::open(directory).size() == 259);
  put("tokenizer.json", "{");
  CHECK(complaint() == directory + "/tokenizer.json: ... JSON object");
  std::filesystem::remove(where / "tokenizer.json");
  put("tokenizer.model", "nothing");
  CHECK(complaint() == directory + "/tokenizer.model: ... SentencePiece model");
  std::filesystem::remove_all(where);
}

}  // namespace
}  // namespace cohort::llama::sentence_pieces_test
