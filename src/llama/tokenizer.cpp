// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <limits>
#include <optional>
#include <queue>

#include "sentence_pieces.hpp"
#include "unicode.hpp"
#include "weights.hpp"

namespace cohort::llama {
namespace {

using nlohmann::json;

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view gpt4o_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view nemo_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::size_t most_tokens = std::size_t{1} << 24U;
constexpr std::size_t most_gaps = 65536;  // Ids that no token has: a few, in what is real.

[[noreturn]] void fail(const std::string& origin, std::string_view what) {
  throw config_error{fmt::format("{}: {}", origin, what)};
}

/// The character that stands for each byte in vocabularies: itself if it is printable Latin-1, else
/// one of U+0100 and up, in order.
const std::array<char32_t, 256>& byte_characters() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> t{};
    char32_t next = 256;
    for (char32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      t[b] = printable ? b : next++;
    }
    return t;
  }();
  return table;
}

/// The bytes that a vocabulary's spelling means, if it is one.
std::optional<std::string> to_bytes(std::string_view spelled) {
  static const std::unordered_map<char32_t, char> back = [] {
    std::unordered_map<char32_t, char> m;
    for (std::size_t b = 0; b < 256; ++b) {
      m[byte_characters()[b]] = static_cast<char>(static_cast<unsigned char>(b));
    }
    return m;
  }();
  std::string out;
  while (!spelled.empty()) {
    const code_point c = next_code_point(spelled);
    const auto at = back.find(c.value);
    if (at == back.end()) return std::nullopt;
    out += at->second;
    spelled.remove_prefix(c.length);
  }
  return out;
}

std::uint64_t pair_key(kv::token_id a, kv::token_id b) noexcept {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U) |
         static_cast<std::uint32_t>(b);
}

/// Whether a normalizer is normal form C; none, and a sequence of nothing, is not.
bool composes(const json& normalizer, const std::string& origin) {
  if (normalizer.is_null()) return false;
  const json type = normalizer.is_object() ? normalizer.value("type", json{}) : json{};
  if (type == "Sequence") {
    bool found = false;
    for (const json& part : normalizer.value("normalizers", json::array())) {
      found = composes(part, origin) || found;
    }
    return found;
  }
  if (type != "NFC") fail(origin, "normalizer: expected none or NFC");
  if (!has_icu()) fail(origin, "normalizer: NFC needs ICU, without which this program was built");
  return true;
}

/// @param digits Is set by a part that splits numbers, which comes before any other.
word_split split_of(const json& pre, const std::string& origin, digit_split& digits) {
  if (pre.is_null()) return word_split::none;
  if (!pre.is_object()) fail(origin, "pre_tokenizer: expected an object");
  const json type = pre.value("type", json{});
  if (type == "ByteLevel") {
    if (pre.value("add_prefix_space", json(false)) == true) {
      fail(origin, "pre_tokenizer.add_prefix_space: expected false");
    }
    return pre.value("use_regex", json(true)) == true ? word_split::gpt2 : word_split::none;
  }
  if (type == "Split") {
    const json pattern = pre.value("pattern", json::object());
    const json text = pattern.is_object() ? pattern.value("Regex", json{}) : json{};
    if (text == gpt2_pattern) return word_split::gpt2;
    if (text == llama3_pattern) return word_split::llama3;
    if (text == qwen2_pattern) return word_split::qwen2;
    const bool is_gpt4o = text == gpt4o_pattern;
    if (!is_gpt4o && text != nemo_pattern) {
      fail(
          origin,
          "pre_tokenizer.pattern: expected that of GPT-2, Llama 3, Qwen 2, GPT-4o or Mistral Nemo");
    }
    if (!has_icu()) {
      fail(origin, "pre_tokenizer.pattern: needs ICU, without which this program was built");
    }
    return is_gpt4o ? word_split::gpt4o : word_split::nemo;
  }
  if (type == "Digits") {
    if (digits != digit_split::none) fail(origin, "pre_tokenizer: expected Digits at most once");
    const bool each = pre.value("individual_digits", json(false)) == true;
    digits = each ? digit_split::each : digit_split::runs;
    return word_split::none;
  }
  if (type == "Sequence") {
    word_split found = word_split::none;
    for (const json& part : pre.value("pretokenizers", json::array())) {
      const digit_split before = digits;
      const word_split s = split_of(part, origin, digits);
      if (found != word_split::none && digits != before) {
        fail(origin, "pre_tokenizer: expected Digits before a pattern");
      }
      if (s == word_split::none) continue;
      if (found != word_split::none) fail(origin, "pre_tokenizer: expected one pattern");
      found = s;
    }
    return found;
  }
  fail(origin, fmt::format("pre_tokenizer.type: got {}, expected ByteLevel, Split, "
                           "Digits or Sequence",
                           type.dump().substr(0, 60)));
}

}  // namespace

namespace {

/// The length of a contraction that a text begins with, such as 's; 0: of none.
std::size_t contraction(std::string_view text, bool any_case) noexcept {
  if (!text.starts_with('\'')) return 0;
  for (const std::string_view tail : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    const bool same = std::ranges::equal(text.substr(1, tail.size()), tail, [&](char a, char b) {
      return a == b || (any_case && a >= 'A' && a <= 'Z' && static_cast<char>(a + 32) == b);
    });
    if (same) return 1 + tail.size();
  }
  return 0;
}

/// The letters and marks of GPT-4o's pattern that a text begins with, as a backtracking matcher
/// finds them: [upper both]* [lower both]+, or else [upper both]+ [lower both]*; 0: none.
/// @param is_second The second of these.
std::size_t cased_word(std::string_view text, bool is_second) {
  const auto end_of = [&](std::size_t i, letter_case other, std::size_t& last_both) {
    last_both = std::string_view::npos;
    while (i < text.size()) {
      const code_point c = next_code_point(text.substr(i));
      const letter_case is = case_of(c.value);
      if (is != letter_case::both && is != other) break;
      if (is == letter_case::both) last_both = i;
      i += c.length;
    }
    return i;
  };
  std::size_t back = 0;
  std::size_t ignored = 0;
  const std::size_t uppers = end_of(0, letter_case::upper, back);
  const std::size_t end = end_of(uppers, letter_case::lower, ignored);
  if (is_second) return uppers > 0 ? end : 0;
  if (end > uppers) return end;
  // The first part gives back what may be of the second: the last such, and what follows it.
  if (back == std::string_view::npos) return 0;
  return end_of(back, letter_case::lower, ignored);
}

}  // namespace

std::size_t first_word(std::string_view text, word_split how) {
  if (how == word_split::none) return text.size();
  const bool cased = how == word_split::gpt4o || how == word_split::nemo;
  const auto at = [&](std::size_t i) {
    return i < text.size() ? next_code_point(text.substr(i)) : code_point{0, 0};
  };
  const auto is_other = [](char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); };
  const auto run = [&](std::size_t i, auto is) {
    for (code_point c = at(i); c.length > 0 && is(c.value); c = at(i)) i += c.length;
    return i;
  };
  const bool gpt2 = how == word_split::gpt2;
  const code_point first = at(0);

  if (!cased) {
    if (const std::size_t n = contraction(text, !gpt2); n > 0) return n;
  }
  const std::size_t skip = first.value == ' ' ? 1 : 0;
  if (gpt2) {
    if (is_letter(at(skip).value)) return run(skip, is_letter);
    if (is_number(at(skip).value)) return run(skip, is_number);
  } else {
    const bool may_lead = first.value != '\r' && first.value != '\n' && !is_letter(first.value) &&
                          !is_number(first.value);
    if (cased) {
      for (const bool is_second : {false, true}) {
        for (const std::size_t lead : {may_lead ? first.length : 0, std::size_t{0}}) {
          const std::size_t n = cased_word(text.substr(lead), is_second);
          if (n == 0) continue;
          const std::size_t end = lead + n;
          if (how == word_split::nemo) return end;
          return end + contraction(text.substr(end), true);
        }
      }
    } else {
      if (is_letter(first.value)) return run(0, is_letter);
      if (may_lead && at(first.length).length > 0 && is_letter(at(first.length).value)) {
        return run(first.length, is_letter);
      }
    }
    if (is_number(first.value)) {
      std::size_t end = 0;
      const int most = how == word_split::llama3 || how == word_split::gpt4o ? 3 : 1;
      for (int n = 0; n < most && at(end).length > 0 && is_number(at(end).value); ++n) {
        end += at(end).length;
      }
      return end;
    }
  }
  if (at(skip).length > 0 && is_other(at(skip).value)) {
    std::size_t end = run(skip, is_other);
    if (!gpt2) {
      end = run(end, [&](char32_t c) { return c == '\r' || c == '\n' || (cased && c == '/'); });
    }
    return end;
  }
  // White space: up to the last line end in it; else all but the last one if a word follows.
  const std::size_t end = run(0, is_space);
  if (!gpt2) {
    const std::size_t line = text.substr(0, end).find_last_of("\r\n");
    if (line != std::string_view::npos) return line + 1;
  }
  if (end == text.size()) return end;
  std::size_t last = 0;
  for (std::size_t i = 0; i < end; i += at(i).length) last = i;
  return last > 0 ? last : end;
}

void tokenizer::set_bytes(kv::token_id token, std::string bytes) {
  const auto i = static_cast<std::size_t>(token);
  if (i >= bytes_.size()) {
    bytes_.resize(i + 1);
    is_special_.resize(i + 1);
    has_mark_.resize(i + 1);
  }
  longest_ = std::max(longest_, bytes.size());
  bytes_[i] = std::move(bytes);
}

void tokenizer::add(const std::string& content, kv::token_id token, bool special) {
  added_[content] = token;
  auto& lengths = added_lengths_[static_cast<unsigned char>(content.front())];
  const auto at = std::ranges::lower_bound(lengths, content.size(), std::greater<>{});
  if (at == lengths.end() || *at != content.size()) lengths.insert(at, content.size());
  if (special) longest_special_ = std::max(longest_special_, content.size());
  set_bytes(token, special ? "" : content);
  is_special_[static_cast<std::size_t>(token)] = special;
  if (special) special_names_[token] = content;
}

tokenizer tokenizer::bytes() {
  tokenizer t;
  for (kv::token_id b = 0; b < 256; ++b) {
    t.set_bytes(b, std::string(1, static_cast<char>(static_cast<unsigned char>(b))));
    t.of_byte_[b] = b;
  }
  kv::token_id next = 256;
  for (const char* name : {"<|begin|>", "<|end|>", "<|pad|>"}) {
    t.add(name, next++, true);
  }
  t.prefix_ = {256};
  return t;
}

std::string tokenizer::bytes_json() {
  json vocabulary = json::object();
  for (std::size_t b = 0; b < 256; ++b) vocabulary[to_utf8(byte_characters()[b])] = b;
  json added = json::array();
  int next = 256;
  for (const char* name : {"<|begin|>", "<|end|>", "<|pad|>"}) {
    added.push_back({{"id", next++}, {"content", name}, {"special", true}});
  }
  return json{{"version", "1.0"},
              {"added_tokens", added},
              {"pre_tokenizer",
               {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
              {"post_processor",
               {{"type", "TemplateProcessing"},
                {"single",
                 {{{"SpecialToken", {{"id", "<|begin|>"}, {"type_id", 0}}}},
                  {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}}},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}}
             .dump(1) +
         "\n";
}

tokenizer tokenizer::parse(std::string_view text, const std::string& origin) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) fail(origin, "not a JSON object");
  const json model = document.value("model", json{});
  if (!model.is_object() || model.value("type", json{}) != "BPE") {
    fail(origin, "model.type: expected BPE");
  }
  if (model.value("byte_fallback", json(false)) == true) {
    fail(origin, "model.byte_fallback: expected false, or a tokenizer.model beside it");
  }
  tokenizer t;
  t.composes_ = composes(document.value("normalizer", json{}), origin);
  t.split_ = split_of(document.value("pre_tokenizer", json{}), origin, t.digits_);
  t.whole_words_ = model.value("ignore_merges", json(false)) == true;

  const json vocabulary = model.value("vocab", json{});
  if (!vocabulary.is_object()) fail(origin, "model.vocab: expected an object");
  const json added = document.value("added_tokens", json::array());
  const std::size_t most = std::min(most_tokens, vocabulary.size() + added.size() + most_gaps);
  const auto token_of = [&](const json& id, std::string_view name) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= most) {
      fail(origin, fmt::format("{}: got {}, expected an integer from 0 to {}", name,
                               id.dump().substr(0, 60), most - 1));
    }
    return static_cast<kv::token_id>(id.get<std::uint32_t>());
  };
  for (const auto& [spelled, id] : vocabulary.items()) {
    const kv::token_id token = token_of(id, "model.vocab");
    const std::optional<std::string> bytes = to_bytes(spelled);
    // A vocabulary may also list added tokens, which are spelled as they are.
    t.set_bytes(token, bytes ? *bytes : spelled);
    if (bytes) t.by_bytes_[*bytes] = token;
  }
  for (std::size_t b = 0; b < 256; ++b) {
    const auto at =
        t.by_bytes_.find(std::string(1, static_cast<char>(static_cast<unsigned char>(b))));
    if (at == t.by_bytes_.end()) {
      fail(origin,
           fmt::format("model.vocab: byte {} is missing: expected a byte-level vocabulary", b));
    }
    t.of_byte_[b] = at->second;
  }

  const json merges = model.value("merges", json{});
  if (!merges.is_array()) fail(origin, "model.merges: expected an array");
  std::uint32_t rank = 0;
  for (const json& m : merges) {
    std::string left;
    std::string right;
    if (m.is_string()) {
      const auto whole = m.get<std::string>();
      const std::size_t space = whole.find(' ');
      if (space == std::string::npos) fail(origin, "model.merges: expected two tokens");
      left = whole.substr(0, space);
      right = whole.substr(space + 1);
    } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      left = m[0].get<std::string>();
      right = m[1].get<std::string>();
    } else {
      fail(origin, "model.merges: expected two tokens");
    }
    const auto a = to_bytes(left);
    const auto b = to_bytes(right);
    const auto find = [&](const std::optional<std::string>& bytes) {
      const auto at = bytes ? t.by_bytes_.find(*bytes) : t.by_bytes_.end();
      if (at == t.by_bytes_.end()) {
        fail(origin,
             fmt::format("model.merges: {} is not in the vocabulary", m.dump().substr(0, 60)));
      }
      return at->second;
    };
    const kv::token_id x = find(a);
    const kv::token_id y = find(b);
    t.merges_.emplace(pair_key(x, y), merge{rank++, find(*a + *b)});
  }

  for (const json& entry : added) {
    if (!entry.is_object() || !entry.value("content", json{}).is_string() ||
        entry["content"].get<std::string>().empty()) {
      fail(origin, "added_tokens: expected objects with content");
    }
    const auto content = entry["content"].get<std::string>();
    const kv::token_id token = token_of(entry.value("id", json{}), "added_tokens.id");
    t.add(content, token, entry.value("special", json(false)) == true);
  }

  // What is put before every text.
  std::vector<json> processors{document.value("post_processor", json{})};
  if (processors[0].is_object() && processors[0].value("type", json{}) == "Sequence") {
    const json parts = processors[0].value("processors", json::array());
    processors.assign(parts.begin(), parts.end());
  }
  for (const json& p : processors) {
    if (!p.is_object() || p.value("type", json{}) != "TemplateProcessing") continue;
    for (const json& piece : p.value("single", json::array())) {
      if (!piece.is_object() || !piece.contains("SpecialToken")) break;
      const json& name = piece["SpecialToken"];
      const json id = name.is_object() ? name.value("id", json{}) : json{};
      const auto at = t.added_.find(id.is_string() ? id.get<std::string>() : "");
      if (at == t.added_.end()) fail(origin, "post_processor: a special token is unknown");
      t.prefix_.push_back(at->second);
    }
  }
  return t;
}

void tokenizer::encode_word(std::string_view word, std::vector<kv::token_id>& out) const {
  if (whole_words_) {
    const auto at = by_bytes_.find(std::string{word});
    if (at != by_bytes_.end()) {
      out.push_back(at->second);
      return;
    }
  }
  // A list of pieces and a heap of merges: O(n log n), since words may be as long as their text.
  struct piece {
    kv::token_id token;
    std::int32_t previous;
    std::int32_t next;
  };
  struct candidate {
    std::uint32_t rank;
    std::int32_t left;
    kv::token_id first, second, result;
    bool operator>(const candidate& o) const {
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };
  const auto n = static_cast<std::int32_t>(word.size());
  std::vector<piece> pieces;
  for (std::int32_t i = 0; i < n; ++i) {
    pieces.push_back({of_byte_[static_cast<unsigned char>(word[static_cast<std::size_t>(i)])],
                      i - 1, i + 1 < n ? i + 1 : -1});
  }
  const auto at = [&](std::int32_t i) -> piece& { return pieces[static_cast<std::size_t>(i)]; };
  std::priority_queue<candidate, std::vector<candidate>, std::greater<>> heap;
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    const kv::token_id a = at(left).token;
    const kv::token_id b = at(at(left).next).token;
    const auto found = merges_.find(pair_key(a, b));
    if (found != merges_.end()) {
      heap.push({found->second.rank, left, a, b, found->second.result});
    }
  };
  for (std::int32_t i = 0; i < n; ++i) offer(i);
  while (!heap.empty()) {
    const candidate c = heap.top();
    heap.pop();
    const std::int32_t right = at(c.left).next;
    if (at(c.left).token != c.first || right < 0 || at(right).token != c.second) continue;
    at(c.left).token = c.result;
    at(c.left).next = at(right).next;
    if (at(right).next >= 0) at(at(right).next).previous = c.left;
    at(right).token = -1;
    offer(c.left);
    offer(at(c.left).previous);
  }
  for (std::int32_t i = 0; i >= 0 && i < n; i = at(i).next) out.push_back(at(i).token);
}

void tokenizer::encode_plain(std::string_view text, place at,
                             std::vector<kv::token_id>& out) const {
  if (pieces_ != nullptr) return pieces_->encode(text, at == place::begin || prefix_anywhere_, out);
  std::string composed;
  if (composes_) text = composed = to_nfc(text);
  if (digits_ == digit_split::none) return encode_words(text, out);
  std::size_t from = 0;
  bool was_number = false;
  for (std::size_t i = 0; i < text.size();) {
    const code_point c = next_code_point(text.substr(i));
    const bool is = is_number(c.value);
    if (is != was_number || (is && digits_ == digit_split::each)) {
      encode_words(text.substr(from, i - from), out);
      from = i;
    }
    was_number = is;
    i += c.length;
  }
  encode_words(text.substr(from), out);
}

void tokenizer::encode_words(std::string_view text, std::vector<kv::token_id>& out) const {
  while (!text.empty()) {
    // At least a byte, should the tables of letters and of their cases ever disagree.
    const std::size_t n = std::max<std::size_t>(first_word(text, split_), 1);
    encode_word(text.substr(0, n), out);
    text.remove_prefix(n);
  }
}

/// The longest added token that a text begins with.
const std::pair<const std::string, kv::token_id>* tokenizer::find_added(std::string_view text,
                                                                        bool special) const {
  for (const std::size_t length : added_lengths_[static_cast<unsigned char>(text.front())]) {
    if (length > text.size()) continue;
    const auto at = added_.find(text.substr(0, length));
    if (at == added_.end()) continue;
    if (special || !is_special_[static_cast<std::size_t>(at->second)]) return &*at;
  }
  return nullptr;
}

std::size_t tokenizer::longest_token(bool special) const noexcept {
  if (pieces_ != nullptr) return 0;
  const std::size_t longest = special ? std::max(longest_, longest_special_) : longest_;
  return composes_ ? 3 * longest : longest;  // A text may be three times its normal form.
}

std::vector<kv::token_id> tokenizer::encode(std::string_view text, bool special, place at) const {
  std::vector<kv::token_id> out;
  if (special) out = prefix_;
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto* hit = find_added(text.substr(i), special);
    if (hit == nullptr) {
      ++i;
      continue;
    }
    encode_plain(text.substr(from, i - from), at, out);
    out.push_back(hit->second);
    at = place::behind_special;
    i += hit->first.size();
    from = i;
  }
  encode_plain(text.substr(from), at, out);
  return out;
}

const std::string& tokenizer::bytes_of(kv::token_id token) const noexcept {
  static const std::string nothing;
  const auto i = static_cast<std::size_t>(static_cast<std::uint32_t>(token));
  return i < bytes_.size() ? bytes_[i] : nothing;
}

const std::string& tokenizer::name_of(kv::token_id token) const noexcept {
  const auto at = special_names_.find(token);
  return at == special_names_.end() ? bytes_of(token) : at->second;
}

std::string tokenizer::decode(const std::vector<kv::token_id>& tokens) const {
  std::string out;
  token_reader reader{*this};
  for (const kv::token_id t : tokens) out += reader.next(t);
  return out;
}

token_reader::token_reader(const tokenizer& words, std::span<const kv::token_id> before)
    : words_{&words}, to_drop_{words.dropped_} {
  for (std::size_t i = 0; i < before.size() && to_drop_ > 0; ++i) (void)next(before[i]);
}

std::string_view token_reader::next(kv::token_id token) noexcept {
  std::string_view bytes = words_->bytes_of(token);
  if (to_drop_ == 0 || bytes.empty()) return bytes;
  if (words_->has_mark_[static_cast<std::size_t>(token)]) {
    bytes.remove_prefix(1);
    --to_drop_;
  }
  if (!bytes.empty()) to_drop_ = 0;  // The text has begun.
  return bytes;
}

piece_settings piece_settings::parse(std::string_view text, const std::string& origin) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) fail(origin, "not a JSON object");
  const auto flag = [&](const char* name, bool otherwise) {
    const json value = document.value(name, json{});
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) fail(origin, fmt::format("{}: expected true or false", name));
    return value.get<bool>();
  };
  piece_settings out{.adds_begin = flag("add_bos_token", true),
                     .prefix_anywhere = flag("legacy", true)};
  const json added = document.value("added_tokens_decoder", json{});
  if (added.is_null()) return out;
  if (!added.is_object()) fail(origin, "added_tokens_decoder: expected an object");
  for (const auto& [name, entry] : added.items()) {
    const bool is_number = !name.empty() && name.size() <= 8 &&
                           name.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || !entry.is_object() || !entry.value("content", json{}).is_string() ||
        entry["content"].get_ref<const std::string&>().empty()) {
      fail(origin, fmt::format("added_tokens_decoder.{}: expected a token with content",
                               name.substr(0, 60)));
    }
    out.added.push_back({.content = entry["content"].get<std::string>(),
                         .id = std::stoi(name),
                         .special = entry.value("special", json(false)) == true});
  }
  return out;
}

tokenizer tokenizer::parse_pieces(std::string_view model, const std::string& origin,
                                  const piece_settings& settings) {
  tokenizer t;
  t.pieces_ = std::make_shared<const sentence_pieces>(model, origin);
  const auto& all = t.pieces_->pieces();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto token = static_cast<kv::token_id>(i);
    if (all[i].is_control && !all[i].name.empty()) {
      t.add(all[i].name, token, true);
    } else {
      t.set_bytes(token, all[i].bytes);
      t.has_mark_[i] = all[i].has_mark;
    }
  }
  for (const auto& a : settings.added) {
    const std::size_t most = all.size() + settings.added.size() + most_gaps;
    if (a.id < 0 || static_cast<std::size_t>(a.id) >= most) {
      fail(origin, fmt::format("the added token {} is far behind its {} pieces", a.id, all.size()));
    }
    // What the model has under the same name it finds itself, but for control pieces.
    const auto i = static_cast<std::size_t>(a.id);
    if (i >= all.size() || a.special) t.add(a.content, a.id, a.special);
  }
  switch (t.pieces_->leading()) {
    case sentence_pieces::leading_marks::kept:
      break;
    case sentence_pieces::leading_marks::first_dropped:
      t.dropped_ = 1;
      break;
    case sentence_pieces::leading_marks::dropped:
      t.dropped_ = std::numeric_limits<std::size_t>::max();
      break;
  }
  t.prefix_anywhere_ = settings.prefix_anywhere;
  if (settings.adds_begin && t.pieces_->begin() >= 0) t.prefix_ = {t.pieces_->begin()};
  return t;
}

tokenizer tokenizer::open(const std::string& directory) {
  const auto has = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  };
  const std::string merges = directory + "/tokenizer.json";
  const std::string pieces = directory + "/tokenizer.model";
  if (!has(pieces)) {
    if (!has(merges)) fail(directory, "neither tokenizer.json nor tokenizer.model is there");
    return parse(read_text(merges), merges);
  }
  if (has(merges)) {
    const std::string text = read_text(merges);
    const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
    const json model = document.is_object() ? document.value("model", json{}) : json{};
    if (!model.is_object() || model.value("byte_fallback", json(false)) != true) {
      return parse(text, merges);
    }
  }
  const std::string more = directory + "/tokenizer_config.json";
  return parse_pieces(read_text(pieces), pieces,
                      has(more) ? piece_settings::parse(read_text(more), more) : piece_settings{});
}

kv::token_id tokenizer::find_special(std::string_view content) const noexcept {
  const auto at = added_.find(std::string{content});
  return at == added_.end() ? -1 : at->second;
}

}  // namespace cohort::llama
