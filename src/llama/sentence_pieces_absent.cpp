// SPDX-License-Identifier: Apache-2.0
// Where the sentencepiece library was not there when this was built.
#include <cohort/core/error.hpp>

#include "sentence_pieces.hpp"

namespace cohort::llama {

struct sentence_pieces::library {};

sentence_pieces::sentence_pieces(std::string_view /*model*/, const std::string& origin) {
  throw config_error{origin + ": this was built without the sentencepiece library"};
}
sentence_pieces::~sentence_pieces() = default;

void sentence_pieces::encode(std::string_view /*text*/, bool /*begins*/,
                             std::vector<kv::token_id>& /*out*/) const {}

}  // namespace cohort::llama
