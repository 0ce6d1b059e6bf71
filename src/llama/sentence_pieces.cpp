// SPDX-License-Identifier: Apache-2.0
#include "sentence_pieces.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstddef>

namespace cohort::llama {
namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581.

/// A message of the library on one line, without the place in its source.
std::string one_line(std::string what) {
  std::ranges::replace(what, '\n', ' ');
  if (const std::size_t at = what.find("] "); at != std::string::npos && at + 2 < what.size()) {
    what.erase(0, at + 2);
  }
  while (!what.empty() && what.back() == ' ') what.pop_back();
  return what.substr(0, 200);
}

void load(sentencepiece::SentencePieceProcessor& to, std::string_view model,
          const std::string& origin) {
  const auto status = to.LoadFromSerializedProto(model);
  if (!status.ok()) {
    throw config_error{
        fmt::format("{}: not a SentencePiece model: {}", origin, one_line(status.ToString()))};
  }
}

std::string with_spaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const bool is_space = piece.starts_with(space_mark);
    out += is_space ? ' ' : piece.front();
    piece.remove_prefix(is_space ? space_mark.size() : 1);
  }
  return out;
}

}  // namespace

struct sentence_pieces::library {
  sentencepiece::SentencePieceProcessor at_begin;
  sentencepiece::SentencePieceProcessor further_on;
};

sentence_pieces::sentence_pieces(std::string_view model, const std::string& origin) {
  auto l = std::make_unique<library>();
  load(l->at_begin, model, origin);
  // Messages of protobuf merge when their bytes are joined: this sets add_dummy_prefix (3) of
  // normalizer_spec (3) to false and leaves the rest.
  load(l->further_on, std::string{model} + std::string{"\x1A\x02\x18\x00", 4}, origin);

  const auto& p = l->at_begin;
  const auto say = [&](const std::vector<int>& ids) {
    std::string text;
    (void)p.Decode(ids, &text);
    return text;
  };
  int spaced = -1;
  pieces_.reserve(static_cast<std::size_t>(p.GetPieceSize()));
  for (int i = 0; i < p.GetPieceSize(); ++i) {
    piece& to = pieces_.emplace_back();
    to.name = p.IdToPiece(i);
    to.is_control = p.IsControl(i);
    if (to.is_control) continue;
    if (p.IsUnknown(i)) {
      to.bytes = say({i});
    } else if (p.IsByte(i)) {  // Named <0x00> to <0xFF>; the library checks it.
      to.bytes.assign(1, static_cast<char>(std::stoi(to.name.substr(3, 2), nullptr, 16)));
    } else {
      to.bytes = with_spaces(to.name);
      to.has_mark = to.name.starts_with(space_mark);
      if (spaced < 0 && to.has_mark) spaced = i;
    }
  }
  // How many of two spaces at the begin of a text decoding drops.
  if (const int space = p.PieceToId(space_mark); !p.IsUnknown(space)) {
    leading_ = static_cast<leading_marks>(2 - std::min<std::size_t>(2, say({space, space}).size()));
  } else if (spaced >= 0 && !say({spaced}).starts_with(' ')) {
    leading_ = leading_marks::first_dropped;
  }
  begin_ = p.bos_id();
  library_ = std::move(l);
}

sentence_pieces::~sentence_pieces() = default;

void sentence_pieces::encode(std::string_view text, bool begins,
                             std::vector<kv::token_id>& out) const {
  if (text.empty()) return;
  std::vector<int> ids;
  const auto& p = begins ? library_->at_begin : library_->further_on;
  if (p.Encode(text, &ids).ok()) {
    out.insert(out.end(), ids.begin(), ids.end());
  } else {
    out.push_back(p.unk_id());
  }
}

}  // namespace cohort::llama
