// SPDX-License-Identifier: Apache-2.0
/// @file
/// A SentencePiece model (tokenizer.model), read and applied by the sentencepiece library.
#pragma once

#include <cohort/kv/batch/prepared.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::llama {

/// Text to pieces. Thread safety: immutable.
class sentence_pieces {
 public:
  struct piece {
    std::string name;   ///< As the model spells it.
    std::string bytes;  ///< Of the text that it stands for; none of a control piece.
    bool is_control = false;
    bool has_mark = false;  ///< Begins with U+2581, which decoding may leave out.
  };
  /// What decoding leaves out at the begin of a text: nothing, one mark, or one mark of each piece
  /// until there is text.
  enum class leading_marks : std::uint8_t { kept, first_dropped, dropped };

  /// @param model The bytes of the file.  @param origin Named in errors.
  /// @throws config_error On one line, if the library refuses them, or was not there when this was
  ///         built.
  sentence_pieces(std::string_view model, const std::string& origin);
  ~sentence_pieces();
  sentence_pieces(const sentence_pieces&) = delete;
  sentence_pieces& operator=(const sentence_pieces&) = delete;

  /// Adds the pieces of a text. What is not UTF-8 becomes U+FFFD.
  /// @param begins Whether the model's own prefix, most often a space, is put before it.
  void encode(std::string_view text, bool begins, std::vector<kv::token_id>& out) const;

  [[nodiscard]] const std::vector<piece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] kv::token_id begin() const noexcept { return begin_; }  ///< −1: none.
  [[nodiscard]] leading_marks leading() const noexcept { return leading_; }

 private:
  struct library;
  std::unique_ptr<const library> library_;
  std::vector<piece> pieces_;
  kv::token_id begin_ = -1;
  leading_marks leading_ = leading_marks::kept;
};

/// The bytes of a small tokenizer.model: <unk>, <s> and </s>, all bytes, printable ASCII and some
/// hundred common pieces, merged as in Llama's.
[[nodiscard]] std::string small_pieces_model();

}  // namespace cohort::llama
