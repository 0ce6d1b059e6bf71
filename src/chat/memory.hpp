// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a text may be in the memory that there is, and how much there should be.
#pragma once

#include <cstdint>
#include <llama/config.hpp>
#include <llama/generation.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::chat {

/// Most tokens of a text, its prompt included, and what would allow more.
struct context_limit {
  std::uint32_t tokens = 0;
  std::uint32_t of_model = 0;
  std::string_view option{};     ///< Of the memory that holds no more; empty: the model says so.
  std::uint64_t wanted_mib = 0;  ///< Of that memory, for a text as long as the model allows.
};

/// @param column_bytes Of a token's keys and values, all layers.
[[nodiscard]] context_limit longest_text(const llama::llama_config& c,
                                         const llama::generator_options& o,
                                         std::uint64_t column_bytes);
/// For people: "context 2048", or how to have more.
[[nodiscard]] std::string to_string(const context_limit& l);

/// What the user chose; the rest follows from the model.
struct memory_options {
  std::optional<std::uint64_t> kv_mib{};
  std::optional<std::uint64_t> staging_mib{};
};
/// For a text of so many tokens there is memory unless the user chose otherwise.
inline constexpr std::uint32_t usual_context = 4096;

/// Sets kv_bytes and staging_bytes. By default keys and values have 512 MiB, or what a text of
/// `usual_context` tokens (or all that the model has) needs; staging 512 MiB, or so much that it
/// does not limit the context, and all of the batch could be preempted beside two such texts.
void size_memory(llama::generator_options& o, const memory_options& chosen,
                 const llama::llama_config& c, std::uint64_t column_bytes);

}  // namespace cohort::chat
