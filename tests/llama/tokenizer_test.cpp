// SPDX-License-Identifier: Apache-2.0
#include <llama/tokenizer.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include <llama/unicode.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::tokenizer_test {
namespace {
using nlohmann::json;
using ids = std::vector<kv::token_id>;
using words = std::vector<std::string>;

words split(std::string_view text, word_split how) {
  words out;
  while (!text.empty()) {
    const std::size_t n = first_word(text, how);
    REQUIRE(n > 0);
    REQUIRE(n <= text.size());
    out.emplace_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return out;
}

/// A vocabulary of bytes plus merges, in order.
json vocabulary(const std::vector<std::pair<std::string, std::string>>& merges) {
  json d = json::parse(tokenizer::bytes_json());
  int next = 300;
  for (const auto& [a, b] : merges) {
    d["model"]["vocab"][a + b] = next++;
    d["model"]["merges"].push_back(a + " " + b);
  }
  d["post_processor"] = nullptr;
  return d;
}

TEST_CASE("words of GPT-2: a space belongs to the word behind it") {
  const auto s = [](std::string_view t) { return split(t, word_split::gpt2); };
  CHECK(s("Hello world") == words{"Hello", " world"});
  CHECK(s("it's 123ab, ok?!") == words{"it", "'s", " 123", "ab", ",", " ok", "?!"});
  CHECK(s("a   b") == words{"a", "  ", " b"});
  CHECK(s("a \n b  ") == words{"a", " \n", " b", "  "});
  CHECK(s("IT'S") == words{"IT", "'", "S"});
  CHECK(s("\xC3\xA9t\xC3\xA9 \xD0\xB4\xD0\xB0") == words{"\xC3\xA9t\xC3\xA9", " \xD0\xB4\xD0\xB0"});
  CHECK(s("\tx") == words{"\t", "x"});
}

TEST_CASE("words of Llama 3: three digits, line ends, one sign before letters") {
  const auto s = [](std::string_view t) { return split(t, word_split::llama3); };
  CHECK(s("IT'S 12345") == words{"IT", "'S", " ", "123", "45"});
  CHECK(s("(foo) bar!\n\nx") == words{"(foo", ")", " bar", "!\n\n", "x"});
  CHECK(s("a  \n  b") == words{"a", "  \n", " ", " b"});
  CHECK(s("\tx") == words{"\tx"});
  CHECK(s("a\r\nb") == words{"a", "\r\n", "b"});
  CHECK(split("12345", word_split::qwen2) == words{"1", "2", "3", "4", "5"});
}

TEST_CASE("words of GPT-4o: capitals begin one, contractions end one, slashes follow signs") {
  if (!has_icu()) return;
  const auto s = [](std::string_view t) { return split(t, word_split::gpt4o); };
  CHECK(s("HelloWorld HTTPServer") == words{"Hello", "World", " HTTPServer"});
  CHECK(s("HTTP x") == words{"HTTP", " x"});
  CHECK(s("it's IT'S don'T've 12345") == words{"it's", " IT'S", " don'T", "'ve", " ", "123", "45"});
  CHECK(s("(foo) http://a\n") == words{"(foo", ")", " http", "://", "a", "\n"});
  CHECK(s("a  \n  b") == words{"a", "  \n", " ", " b"});
  // Chinese (Lo) goes with either case: [upper]* takes all, and gives back as far as the last Lo.
  CHECK(s("\u4E2DA") == words{"\u4E2D", "A"});
  CHECK(s("\u4E2D\u6587Ab") == words{"\u4E2D\u6587Ab"});
  CHECK(s("A\u4E2Db") == words{"A\u4E2Db"});
  CHECK(s("aA") == words{"a", "A"});
  // A mark may lead, as it is no letter, or be a letter's.
  CHECK(s("\u0301a") == words{"\u0301a"});
  CHECK(s("\u0301") == words{"\u0301"});
  CHECK(s("e\u0301E\u0301") == words{"e\u0301", "E\u0301"});
  const auto n = [](std::string_view t) { return split(t, word_split::nemo); };
  CHECK(n("it's 123 HelloWorld!/") ==
        words{"it", "'s", " ", "1", "2", "3", " Hello", "World", "!/"});
}

/// All words of a pattern that begin with letters, by trying each cut as a backtracking matcher
/// does: the longest first part, then the longest second one.
std::size_t matched_letters(std::string_view text) {
  const auto at = [&](std::size_t i) { return next_code_point(text.substr(i)); };
  const auto run = [&](std::size_t i, letter_case other) {
    std::vector<std::size_t> ends{i};
    while (i < text.size()) {
      const letter_case is = case_of(at(i).value);
      if (is != letter_case::both && is != other) break;
      ends.push_back(i += at(i).length);
    }
    return ends;
  };
  const char32_t first = at(0).value;
  const bool may_lead = first != '\r' && first != '\n' && !is_letter(first) && !is_number(first);
  for (const bool is_second : {false, true}) {
    for (const std::size_t lead : {may_lead ? at(0).length : 0, std::size_t{0}}) {
      const auto uppers = run(lead, letter_case::upper);
      for (std::size_t k = uppers.size(); k-- > (is_second ? 1U : 0U);) {
        const auto lowers = run(uppers[k], letter_case::lower);
        if (lowers.size() > 1 || is_second) return lowers.back();
      }
    }
  }
  return 0;
}

TEST_CASE("words of letters are those of a matcher that tries every cut") {
  if (!has_icu()) return;
  constexpr std::string_view parts[] = {"a", "B", "\u4E2D", "\u0301", "\u01C5", "\u02B0",
                                        " ", "(", "1",      "\n",     "\u00E9"};
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::string text;
    for (unsigned n = 1 + random.below(8U); n > 0; --n) text += parts[random.below(11U)];
    CAPTURE(text);
    const std::size_t letters = matched_letters(text);
    if (letters > 0) REQUIRE(first_word(text, word_split::nemo) == letters);
  }
}

TEST_CASE("numbers are words of their own where the tokenizer says so") {
  json d = vocabulary({{"1", "2"}, {"\u0120", "1"}, {"a", "1"}, {"\u0120", "\u0120"}});
  const auto tokens = [&](bool each, std::string_view text) {
    const json level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
    d["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", each}}, level}}};
    const tokenizer t = tokenizer::parse(d.dump(), "t.json");
    words out;
    for (const kv::token_id id : t.encode(text)) out.push_back(t.bytes_of(id));
    return out;
  };
  CHECK(tokens(true, "a12 1") == words{"a", "1", "2", " ", "1"});
  CHECK(tokens(false, "a12 1") == words{"a", "12", " ", "1"});
  // A ByteLevel that says nothing of its pattern has that of GPT-2.
  d["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const tokenizer plain = tokenizer::parse(d.dump(), "t.json");
  CHECK(plain.encode("a1").size() == 2);                 // "a1" is a token, but two words.
  CHECK(tokens(true, "a  1") == words{"a", "  ", "1"});  // Nothing follows in the piece of spaces.
}

TEST_CASE("text in normal form C is what Qwen's tokenizers read") {
  if (!has_icu()) return;
  CHECK(to_nfc("e\u0301") == "\u00E9");
  CHECK(to_nfc("\u212B") == "\u00C5");              // Angstrom sign.
  CHECK(to_nfc("\u1112\u1161\u11AB") == "\uD55C");  // Hangul.
  CHECK(to_nfc("\u0958") == "\u0915\u093C");        // Excluded from composition.
  CHECK(to_nfc("a\u0323\u0307") == "\u1EA1\u0307");
  CHECK(to_nfc("a\u0307\u0323") == "\u1EA1\u0307");  // Marks in order.
  CHECK(to_nfc("\xFF e\u0301") == "\xFF e\u0301");   // Not UTF-8.
  CHECK(to_nfc("").empty());
  // No text is more than three times as long as its normal form.
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = to_utf8(c);
    REQUIRE(text.size() <= 3 * to_nfc(text).size());
  }
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::string text;
    for (unsigned n = 1 + random.below(6U); n > 0; --n) {
      const char32_t bases[] = {U'a', 0x3B1, 0x1F01, 0x1100, 0x1161, 0x11A8, 0x915, 0x212B, 0x2126};
      text += to_utf8(random.one_in(2) ? 0x300 + random.below(0x70U) : bases[random.below(9U)]);
    }
    const std::string normal = to_nfc(text);
    REQUIRE(text.size() <= 3 * normal.size());
    REQUIRE(to_nfc(normal) == normal);
  }
  json d = vocabulary({{"\u00C3", "\u00A9"}});  // The bytes of U+00E9.
  const std::string both = "<e\u0301>";
  d["added_tokens"] = {{{"id", 301}, {"content", both}, {"special", true}}};
  const ids raw = tokenizer::parse(d.dump(), "t").encode("e\u0301", false);
  d["normalizer"] = {{"type", "NFC"}};
  const tokenizer t = tokenizer::parse(d.dump(), "t");
  CHECK(raw.size() == 3);
  CHECK(t.encode("e\u0301", false).size() == 1);
  CHECK(t.decode(t.encode("e\u0301")) == "\u00E9");
  CHECK(t.encode("x" + both).back() == 301);  // Names are found before.
  CHECK(t.longest_token() == 3 * both.size());
}

TEST_CASE("characters have the classes that Unicode gives them") {
  CHECK(is_letter(U'\u00E9'));
  CHECK(is_letter(U'\u4E2D'));
  CHECK(is_letter(U'\U00020000'));
  CHECK_FALSE(is_letter(U'\u00D7'));  // Multiplication sign.
  CHECK(is_number(U'\u0663'));
  CHECK(is_number(U'\u00BD'));
  CHECK(is_space(U'\u3000'));
  CHECK_FALSE(is_space(U'\u200B'));
  CHECK(next_code_point("\xE2\x82\xAC").value == U'\u20AC');
  CHECK(next_code_point("\xED\xA0\x80").value == 0xFFFD);  // A surrogate.
  CHECK(next_code_point("\xC0\x80").length == 1);
  CHECK(next_code_point("\xF0\x9F").length == 1);
  for (const char32_t c : {U'a', U'\u00E9', U'\u20AC', U'\U0001F600'}) {
    CHECK(next_code_point(to_utf8(c)).value == c);
  }
}

TEST_CASE("merges are applied by rank, the leftmost first") {
  json d = vocabulary({{"l", "o"}, {"lo", "w"}, {"e", "r"}, {"a", "a"}});
  const tokenizer t = tokenizer::parse(d.dump(), "t");
  CHECK(t.encode("lower") == ids{301, 302});
  CHECK(t.encode("low") == ids{301});
  CHECK(t.encode("aaa") == ids{303, 'a'});
  CHECK(t.encode("slo") == ids{'s', 300});
  CHECK(t.decode({301, 302}) == "lower");
  // "\u0120" stands for the space; without a pattern words may span it.
  d = vocabulary({{"\xC4\xA0", "a"}});
  CHECK(tokenizer::parse(d.dump(), "t").encode("b a") == ids{'b', 300});
  // Merges as pairs.
  d = vocabulary({});
  d["model"]["vocab"]["ab"] = 300;
  d["model"]["merges"] = json::array({json::array({"a", "b"})});
  CHECK(tokenizer::parse(d.dump(), "t").encode("ab") == ids{300});
}

TEST_CASE("a word that is a token needs no merges where the model says so") {
  json d = vocabulary({});
  d["model"]["vocab"]["abc"] = 300;
  CHECK(tokenizer::parse(d.dump(), "t").encode("abc") == ids{'a', 'b', 'c'});
  d["model"]["ignore_merges"] = true;
  CHECK(tokenizer::parse(d.dump(), "t").encode("abc") == ids{300});
}

TEST_CASE("special tokens are found in text, the longest first, unless it is plain") {
  json d = vocabulary({});
  d["added_tokens"].push_back({{"id", 400}, {"content", "<|end|>x"}, {"special", true}});
  d["added_tokens"].push_back({{"id", 401}, {"content", "tool"}, {"special", false}});
  const tokenizer t = tokenizer::parse(d.dump(), "t");
  CHECK(t.encode("a<|end|>b") == ids{'a', 257, 'b'});
  CHECK(t.encode("<|end|>x") == ids{400});
  CHECK(t.encode("<|end|>", false).size() == 7);
  CHECK(t.encode("tool", false) == ids{401});
  CHECK(t.decode({'a', 257, 401}) == "atool");
  CHECK(t.find_special("<|begin|>") == 256);
  CHECK(t.find_special("?") == -1);
}

TEST_CASE("added tokens are found as trying each would, however many there are") {
  json d = vocabulary({});
  int next = 1000;
  std::vector<std::pair<std::string, bool>> names;
  for (const char* name : {"<", "<|", "<|a", "<|a|>", "<|ab|>", "a|", "|>|", "<<a"}) {
    names.emplace_back(name, names.size() % 2 == 0);
    d["added_tokens"].push_back(
        {{"id", next++}, {"content", name}, {"special", names.back().second}});
  }
  const tokenizer t = tokenizer::parse(d.dump(), "t");
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::string text(random.below(20U), ' ');
    for (char& c : text) c = "<|ab>"[random.below(5)];
    const bool special = random.one_in(2);
    ids expected;
    for (std::size_t i = 0; i < text.size();) {
      std::size_t best = names.size();
      for (std::size_t k = 0; k < names.size(); ++k) {
        if ((special || !names[k].second) &&
            text.compare(i, names[k].first.size(), names[k].first) == 0 &&
            (best == names.size() || names[k].first.size() > names[best].first.size())) {
          best = k;
        }
      }
      if (best == names.size()) {
        expected.push_back(text[i++]);
      } else {
        expected.push_back(static_cast<kv::token_id>(1000 + best));
        i += names[best].first.size();
      }
    }
    REQUIRE(t.encode(text, special) == expected);
  }
  // Trying each of these at each byte is 3e10 comparisons.
  for (int i = 0; i < 30000; ++i) {
    d["added_tokens"].push_back(
        {{"id", next++}, {"content", "<|reserved_" + std::to_string(i)}, {"special", true}});
  }
  const tokenizer many = tokenizer::parse(d.dump(), "t");
  CHECK(many.encode(std::string(1U << 20U, '>')).size() == 1U << 20U);
  CHECK(many.encode("<|reserved_123") == ids{1008 + 123});
}

TEST_CASE("no token stands for more bytes than the longest") {
  const tokenizer t = tokenizer::parse(vocabulary({{"a", "b"}, {"ab", "ab"}}).dump(), "t");
  CHECK(t.longest_token(false) == 4);
  CHECK(t.longest_token() == 9);  // <|begin|>.
  for (const char* text : {"abababab", "<|begin|><|begin|>"}) {
    const std::size_t bytes = std::string_view{text}.size();
    CHECK(t.encode(text).size() * t.longest_token() >= bytes);
    CHECK(t.encode(text, false).size() * t.longest_token(false) >= bytes);
  }
}

TEST_CASE("special tokens have names though they have no text") {
  const tokenizer t = tokenizer::bytes();
  CHECK(t.bytes_of(257).empty());
  CHECK(t.name_of(257) == "<|end|>");
  CHECK(t.name_of('a') == "a");
  CHECK(t.name_of(999).empty());
}

TEST_CASE("the byte tokenizer and what its file says are the same; any bytes come back") {
  const tokenizer built = tokenizer::bytes();
  const tokenizer read = tokenizer::parse(tokenizer::bytes_json(), "t");
  CHECK(built.size() == 259);
  CHECK(read.size() == 259);
  const tokenizer merged =
      tokenizer::parse(vocabulary({{"a", "b"}, {"ab", "a"}, {"b", "b"}, {"bb", "ab"}}).dump(), "t");
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    test::random_source random{seed};
    std::string text(random.below(60U), ' ');
    for (char& c : text) {
      c = random.one_in(2) ? static_cast<char>('a' + random.below(2))
                           : static_cast<char>(static_cast<unsigned char>(random.below(256U)));
    }
    const ids tokens = built.encode(text);
    REQUIRE(tokens == read.encode(text));
    REQUIRE(tokens.size() == text.size() + 1);
    REQUIRE(tokens[0] == 256);
    REQUIRE(built.decode(tokens) == text);
    REQUIRE(merged.decode(merged.encode(text)) == text);
    for (const word_split how : {word_split::gpt2, word_split::llama3, word_split::qwen2}) {
      (void)split(text, how);
    }
  }
}

/// BPE as its definition says it: merge the best pair, leftmost, until none is left.
ids plain_bpe(std::string_view text,
              const std::vector<std::pair<std::string, std::string>>& merges) {
  words pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  for (;;) {
    std::size_t best = merges.size();
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      for (std::size_t m = 0; m < best; ++m) {
        if (merges[m] == std::pair{pieces[i], pieces[i + 1]}) {
          best = m;
          where = i;
        }
      }
    }
    if (best == merges.size()) break;
    pieces[where] += pieces[where + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  ids out;
  for (const std::string& p : pieces) {
    if (p.size() == 1) {
      out.push_back(p[0]);
      continue;
    }
    for (std::size_t m = 0; m < merges.size(); ++m) {
      if (merges[m].first + merges[m].second == p)
        out.push_back(static_cast<kv::token_id>(300 + m));
    }
  }
  return out;
}

TEST_CASE("merging is what its definition says") {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"}, {"b", "a"}, {"ab", "ab"}, {"c", "a"}, {"b", "b"}, {"abab", "c"}, {"ba", "ca"}};
  const tokenizer t = tokenizer::parse(vocabulary(merges).dump(), "t");
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::string text(1 + random.below(14U), 'a');
    for (char& c : text) c = static_cast<char>('a' + random.below(3));
    REQUIRE(t.encode(text) == plain_bpe(text, merges));
  }
}

TEST_CASE("a long word takes no quadratic time") {
  const tokenizer t = tokenizer::parse(vocabulary({{"a", "a"}, {"aa", "aa"}}).dump(), "t");
  CHECK(t.encode(std::string(1U << 20U, 'a')).size() == 1U << 18U);
}

test::gist complaint(const json& d) {
  try {
    (void)tokenizer::parse(d.dump(), "t.json");
  } catch (const config_error& e) {
    return test::gist(e.what());
  }
  return test::gist{""};
}

TEST_CASE("what is not a byte-level BPE is refused in one line") {
  json d = vocabulary({});
  d["model"]["type"] = "Unigram";
  CHECK(complaint(d) == "t.json: model.type: ... BPE");
  d = vocabulary({});
  d["model"]["vocab"].erase("a");
  CHECK(complaint(d) == "t.json: model.vocab: ... byte 97 ... missing");
  d = vocabulary({});
  d["model"]["merges"].push_back("a b");
  CHECK(complaint(d) == "t.json: model.merges: ... \"a b\" ... vocabulary");
  d["model"]["merges"][0] = 7;
  CHECK(complaint(d) == "t.json: model.merges: ... two tokens");
  d = vocabulary({});
  d["model"]["vocab"]["zz"] = -1;
  CHECK(complaint(d).starts_with("t.json: model.vocab: bad value"));
  d["model"]["vocab"]["zz"] = 1U << 20U;  // Far behind the others: nothing but memory.
  CHECK(complaint(d).starts_with("t.json: model.vocab: bad value"));
  d["model"]["vocab"]["zz"] = 1e18;
  CHECK_FALSE(complaint(d).empty());
  d = vocabulary({});
  d["pre_tokenizer"] = {{"type", "Metaspace"}};
  CHECK(complaint(d).starts_with("t.json: pre_tokenizer.type: bad value"));
  d["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", ".*"}}}};
  CHECK_FALSE(complaint(d).empty());
  d = vocabulary({});
  d["normalizer"] = {{"type", "NFKC"}};
  CHECK(complaint(d) == "t.json: normalizer: ... none ... NFC");
  d["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}};
  CHECK(complaint(d) == "t.json: normalizer: ... none ... NFC");
  d["normalizer"]["normalizers"] = json::array();  // DeepSeek V3's.
  CHECK(complaint(d).empty());
  const json digits{{"type", "Digits"}, {"individual_digits", true}};
  const json level{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  d["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {level, digits}}};
  CHECK(complaint(d) == "t.json: pre_tokenizer: ... Digits before ...");
  d["pre_tokenizer"]["pretokenizers"] = {digits, digits};
  CHECK(complaint(d) == "t.json: pre_tokenizer: ... Digits ... once");
  CHECK_THROWS_AS(tokenizer::parse("[", "t"), config_error);
  CHECK_THROWS_AS(tokenizer::parse("[]", "t"), config_error);
}

}  // namespace
}  // namespace cohort::llama::tokenizer_test
