// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text to tokens: byte-level BPE from a Hugging Face tokenizer.json, or the pieces of a
/// SentencePiece tokenizer.model.
#pragma once

#include <cohort/kv/batch/prepared.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::llama {

class sentence_pieces;

/// How text is cut into words before merging.
enum class word_split : std::uint8_t {
  none,    ///< Not at all.
  gpt2,    ///< The pattern of GPT-2, also that of a plain ByteLevel pre-tokenizer.
  llama3,  ///< That of Llama 3: up to three digits, line ends with what precedes them.
  qwen2,   ///< The same with single digits.
  gpt4o,   ///< That of GPT-4o and gpt-oss: as Llama 3, and capitals begin a word. Needs ICU.
  nemo,    ///< That of Mistral Nemo: the same with single digits and no contractions. Needs ICU.
};

/// Whether numbers are words of their own before anything else.
enum class digit_split : std::uint8_t {
  none,
  runs,  ///< Those that stand together are one.
  each,  ///< Each is one: SmolLM2.
};

/// What a tokenizer_config.json adds to a tokenizer.model.
struct piece_settings {
  struct added_token {
    std::string content;
    kv::token_id id = 0;
    bool special = false;
  };
  bool adds_begin = true;       ///< `add_bos_token`: <s> is put before a text.
  bool prefix_anywhere = true;  ///< `legacy`: the prefix also before text behind a special token.
  std::vector<added_token> added{};  ///< `added_tokens_decoder`.

  /// @throws config_error On one line, if it is not a JSON object with fields of these types.
  static piece_settings parse(std::string_view json, const std::string& origin);
};

/// Text to tokens and back. Thread safety: immutable.
class tokenizer {
 public:
  /// One token for each byte, then <|begin|>, <|end|> and <|pad|>: 259 in all.
  static tokenizer bytes();

  /// @param origin Named in errors.
  /// @throws config_error On one line, if it is not a byte-level BPE of a supported form.
  static tokenizer parse(std::string_view json, const std::string& origin);

  /// @param model The bytes of a tokenizer.model.
  /// @throws config_error On one line, if the library refuses it or an added token has no place.
  static tokenizer parse_pieces(std::string_view model, const std::string& origin,
                                const piece_settings& settings = {});

  /// Of a model's directory: its tokenizer.json; or its tokenizer.model, if there is no
  /// tokenizer.json or if that says `byte_fallback`, being made from the tokenizer.model.
  /// @throws config_error As the two above; if neither is there.
  static tokenizer open(const std::string& directory);

  /// Where a text stands: a SentencePiece model may treat the begin otherwise.
  enum class place : std::uint8_t { begin, behind_special };
  /// @param special Also what the model wants before every text, and whether the names of special
  ///        tokens in the text become these. Bytes that are not UTF-8 are kept by BPE; in pieces
  ///        they become U+FFFD.
  [[nodiscard]] std::vector<kv::token_id> encode(std::string_view text, bool special = true,
                                                 place at = place::begin) const;

  /// The bytes of a token that is not the first of a text; of a special token none.
  [[nodiscard]] const std::string& bytes_of(kv::token_id token) const noexcept;
  /// What a token is called: its bytes, or the content of a special one. Empty if it has neither.
  [[nodiscard]] const std::string& name_of(kv::token_id token) const noexcept;
  /// The text of tokens, as `token_reader` gives it piece by piece.
  [[nodiscard]] std::string decode(const std::vector<kv::token_id>& tokens) const;

  /// No token stands for more bytes of a text: a text of n bytes has at least n over this many
  /// tokens. 0: nothing of the kind is known, as with pieces, whose text is normalised.
  /// @param special Whether names of special tokens in the text become these.
  [[nodiscard]] std::size_t longest_token(bool special = true) const noexcept;

  /// A token by its content, or −1.
  [[nodiscard]] kv::token_id find_special(std::string_view content) const noexcept;
  /// One more than the largest token.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

  /// The tokenizer.json that `parse` reads back, of `bytes()` alone.
  [[nodiscard]] static std::string bytes_json();

 private:
  struct merge {
    std::uint32_t rank = 0;
    kv::token_id result = 0;
  };

  void encode_word(std::string_view word, std::vector<kv::token_id>& out) const;
  void encode_words(std::string_view text, std::vector<kv::token_id>& out) const;
  void encode_plain(std::string_view text, place at, std::vector<kv::token_id>& out) const;
  void add(const std::string& content, kv::token_id token, bool special);
  void set_bytes(kv::token_id token, std::string bytes);
  [[nodiscard]] const std::pair<const std::string, kv::token_id>* find_added(std::string_view text,
                                                                             bool special) const;

  word_split split_ = word_split::none;
  digit_split digits_ = digit_split::none;
  bool composes_ = false;     // Text is brought into normal form C first.
  bool whole_words_ = false;  // A word that is a token needs no merges.
  std::vector<std::string> bytes_;
  std::vector<bool> is_special_;
  std::unordered_map<kv::token_id, std::string> special_names_;
  kv::token_id of_byte_[256] = {};
  std::unordered_map<std::string, kv::token_id> by_bytes_;
  std::unordered_map<std::uint64_t, merge> merges_;  // By both tokens.
  std::map<std::string, kv::token_id, std::greater<>> added_;
  std::array<std::vector<std::size_t>, 256> added_lengths_;  // By first byte, the longest first.
  std::size_t longest_ = 0;  // Bytes of a token that is not special.
  std::size_t longest_special_ = 0;
  std::vector<kv::token_id> prefix_;
  std::shared_ptr<const sentence_pieces> pieces_;  // Instead of merges.
  std::vector<bool> has_mark_;  // Begins with a space that is dropped at the begin of a text:
  std::size_t dropped_ = 0;     // at most one of each token, so many in all.
  bool prefix_anywhere_ = true;
  friend class token_reader;
};

/// The bytes of tokens that follow each other. Joined they are the text: a SentencePiece model puts
/// a space before every text, which is no part of it. A character may span tokens.
class token_reader {
 public:
  token_reader() = default;
  /// @param words Must outlive it.  @param before Tokens of the same text, such as a prompt.
  explicit token_reader(const tokenizer& words, std::span<const kv::token_id> before = {});
  /// Valid as long as the tokenizer.
  [[nodiscard]] std::string_view next(kv::token_id token) noexcept;

 private:
  const tokenizer* words_ = nullptr;
  std::size_t to_drop_ = 0;
};

/// Length of the first word of a text that is not empty.
/// @throws config_error Without ICU, if `how` needs it.
[[nodiscard]] std::size_t first_word(std::string_view text, word_split how);

}  // namespace cohort::llama
