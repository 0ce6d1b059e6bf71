// SPDX-License-Identifier: Apache-2.0
// Any bytes are a SentencePiece model, or refused with a config_error of one line. The first byte
// damages the small model there is, so that most inputs are nearly right.
#include <llama/sentence_pieces.hpp>
#include <llama/tokenizer.hpp>

#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string model{reinterpret_cast<const char*>(data + 1), size - 1};
  if (data[0] % 2 == 1) {  // Triples: where, and the byte there; what is left is appended.
    static const std::string good = cohort::llama::small_pieces_model();
    std::string damaged = good;
    std::size_t at = 1;
    for (; at + 3 <= size && at < 30; at += 3) {
      const std::size_t where = (std::size_t{data[at]} << 8U | data[at + 1]) % damaged.size();
      damaged[where] = static_cast<char>(data[at + 2]);
    }
    model = damaged.append(reinterpret_cast<const char*>(data + at), size - at);
  }
  try {
    const auto words = cohort::llama::tokenizer::parse_pieces(model, "f");
    (void)words.decode(words.encode("the sea, \xF0\x9F\x98\x80  <s>"));
  } catch (const cohort::config_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
