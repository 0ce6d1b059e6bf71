// SPDX-License-Identifier: Apache-2.0
/// @file
/// Byte-level BPE, from a Hugging Face tokenizer.json.
#pragma once

#include <cohort/kv/prepared.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::llm {

/// How text is cut into words before merging.
enum class word_split : std::uint8_t {
  none,    ///< Not at all.
  gpt2,    ///< The pattern of GPT-2, also that of a plain ByteLevel pre-tokenizer.
  llama3,  ///< That of Llama 3: up to three digits, line ends with what precedes them.
  qwen2,   ///< The same with single digits.
};

/// Text to tokens and back. Thread safety: immutable.
class tokenizer {
 public:
  /// One token for each byte, then <|begin|>, <|end|> and <|pad|>: 259 in all.
  static tokenizer bytes();

  /// @param origin Named in errors.
  /// @throws config_error On one line, if it is not a byte-level BPE of a supported form.
  static tokenizer parse(std::string_view json, const std::string& origin);

  /// @param special Also what the post-processor adds at the begin, and whether the names of
  /// special
  ///        tokens in the text become these. What is not UTF-8 keeps its bytes.
  [[nodiscard]] std::vector<kv::token_id> encode(std::string_view text, bool special = true) const;

  /// The bytes of a token; of a special token none.
  [[nodiscard]] const std::string& bytes_of(kv::token_id token) const noexcept;
  [[nodiscard]] std::string decode(const std::vector<kv::token_id>& tokens) const;

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
  void encode_plain(std::string_view text, std::vector<kv::token_id>& out) const;
  void set_bytes(kv::token_id token, std::string bytes);

  word_split split_ = word_split::none;
  bool whole_words_ = false;  // A word that is a token needs no merges.
  std::vector<std::string> bytes_;
  std::vector<bool> is_special_;
  kv::token_id of_byte_[256] = {};
  std::unordered_map<std::string, kv::token_id> by_bytes_;
  std::unordered_map<std::uint64_t, merge> merges_;  // By both tokens.
  std::map<std::string, kv::token_id, std::greater<>> added_;
  std::vector<kv::token_id> prefix_;
};

/// Length of the first word of a text that is not empty.
[[nodiscard]] std::size_t first_word(std::string_view text, word_split how) noexcept;

}  // namespace cohort::llm
