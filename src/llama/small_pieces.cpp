// SPDX-License-Identifier: Apache-2.0
// A tokenizer.model without a trainer: the few fields of its protocol buffer, written by hand.
#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "sentence_pieces.hpp"

namespace cohort::llama {
namespace {

// Of ModelProto and SentencePiece in the format's description.
enum class piece_type : std::uint8_t { normal = 1, unknown = 2, control = 3, byte = 6 };

void put_varint(std::string& to, std::uint64_t v) {
  for (; v >= 0x80; v >>= 7U) to += static_cast<char>(static_cast<unsigned char>(v | 0x80U));
  to += static_cast<char>(static_cast<unsigned char>(v));
}
/// A field of varint type.
void put(std::string& to, unsigned field, std::uint64_t v) {
  put_varint(to, field << 3U);
  put_varint(to, v);
}
/// A field of bytes.
void put(std::string& to, unsigned field, std::string_view bytes) {
  put_varint(to, (field << 3U) | 2U);
  put_varint(to, bytes.size());
  to += bytes;
}
void put(std::string& to, unsigned field, float v) {
  put_varint(to, (field << 3U) | 5U);
  const auto bits = std::bit_cast<std::uint32_t>(v);
  for (unsigned i = 0; i < 32; i += 8) {
    to += static_cast<char>(static_cast<unsigned char>(bits >> i));
  }
}

}  // namespace

std::string small_pieces_model() {
  std::string model;
  int pieces = 0;
  const auto add = [&](std::string_view name, piece_type type) {
    std::string piece;
    put(piece, 1, name);
    // Merges are tried by falling score.
    put(piece, 2, type == piece_type::normal ? -static_cast<float>(pieces) : 0.0F);
    put(piece, 3, static_cast<std::uint64_t>(type));
    put(model, 1, piece);
    ++pieces;
  };
  add("<unk>", piece_type::unknown);
  add("<s>", piece_type::control);
  add("</s>", piece_type::control);
  for (int b = 0; b < 256; ++b) add(fmt::format("<0x{:02X}>", b), piece_type::byte);
  const std::string space = "\xE2\x96\x81";
  // Each is two others, joined; _ is the space.
  for (const char* merged :
       {"_t", "he",  "_a",  "in",   "re",  "on",  "_the", "er", "_s",  "at", "en",   "_o",  "ou",
        "_w", "nd",  "is",  "or",   "_c",  "it",  "es",   "_b", "ing", "_f", "_p",   "an",  "_in",
        "ed", "al",  "_m",  "_and", "ar",  "_to", "_of",  "_h", "_d",  "st", "ion",  "le",  "_th",
        "as", "ent", "_l",  "_n",   "_re", "_g",  "_you", "_e", "ic",  "ll", "_for", "_is", "_wh",
        "ve", "_it", "_on", "_I",   "_he", "_y",  "_be",  "_T", "_A"}) {
    std::string name = merged;
    if (name.front() == '_') name.replace(0, 1, space);
    add(name, piece_type::normal);
  }
  add(space, piece_type::normal);
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c), piece_type::normal);

  std::string trainer;
  put(trainer, 3, std::uint64_t{2});  // model_type: BPE.
  put(trainer, 4, static_cast<std::uint64_t>(pieces));
  put(trainer, 35, std::uint64_t{1});  // byte_fallback.
  put(model, 2, trainer);
  std::string normalizer;
  put(normalizer, 1, "identity");
  put(normalizer, 3, std::uint64_t{1});  // add_dummy_prefix.
  put(normalizer, 4, std::uint64_t{0});  // remove_extra_whitespaces.
  put(normalizer, 5, std::uint64_t{1});  // escape_whitespaces.
  put(model, 3, normalizer);
  return model;
}

}  // namespace cohort::llama
