// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <cohort/kv/batch/budget.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <ranges>

namespace cohort::chat {
namespace {

constexpr std::uint64_t usual_bytes = std::uint64_t{512} << 20U;

std::uint64_t to_mib(std::uint64_t bytes) { return (bytes >> 20U) + (bytes % (1U << 20U) ? 1 : 0); }

/// What the batch needs for a text alone.
std::uint64_t kv_for(std::uint32_t tokens, const llama::generator_options& o,
                     std::uint64_t column_bytes) {
  return kv::kv_budget{o.budget(column_bytes)}.peak_bytes({1, 0, o.columns}, tokens);
}
/// The most tokens, up to `most`, for which `fits` holds; it does for fewer, then, too.
template <class Fits>
std::uint32_t most_tokens(std::size_t most, Fits fits) {
  const auto counts = std::views::iota(1U, static_cast<std::uint32_t>(most) + 1);
  return static_cast<std::uint32_t>(std::ranges::partition_point(counts, fits) - counts.begin());
}
std::uint32_t most_by_kv(const llama::llama_config& c, const llama::generator_options& o,
                         std::uint64_t column_bytes) {
  const kv::kv_budget budget{o.budget(column_bytes)};
  return most_tokens(c.max_positions,
                     [&](std::uint32_t n) { return budget.can_run_alone(1, n - 1, o.columns); });
}

}  // namespace

context_limit longest_text(const llama::llama_config& c, const llama::generator_options& o,
                           std::uint64_t column_bytes) {
  const auto all = static_cast<std::uint32_t>(c.max_positions);
  const std::uint32_t by_kv = most_by_kv(c, o, column_bytes);
  const std::uint32_t by_staging =
      most_tokens(all, [&](std::uint32_t n) { return n * column_bytes <= o.longest_packed(); });
  context_limit l{.tokens = std::min(by_kv, by_staging), .of_model = all};
  if (l.tokens == all) return l;
  if (by_kv <= by_staging) {
    l.option = "--kv-mib";
    l.wanted_mib = to_mib(kv_for(all, o, column_bytes));
  } else {
    l.option = "--staging-mib";
    l.wanted_mib = to_mib(all * column_bytes * o.staged_texts());
  }
  return l;
}

std::string to_string(const context_limit& l) {
  if (l.option.empty()) return fmt::format("context {}", l.tokens);
  return fmt::format("context {} of the model's {} ({} {} would hold all)", l.tokens, l.of_model,
                     l.option, l.wanted_mib);
}

void size_memory(llama::generator_options& o, const memory_options& chosen,
                 const llama::llama_config& c, std::uint64_t column_bytes) {
  const auto usual =
      static_cast<std::uint32_t>(std::min<std::size_t>(c.max_positions, usual_context));
  o.kv_bytes = chosen.kv_mib ? *chosen.kv_mib << 20U
                             : std::max(usual_bytes, to_mib(kv_for(usual, o, column_bytes)) << 20U);
  const std::uint64_t text = most_by_kv(c, o, column_bytes) * column_bytes;
  const std::uint64_t staging = std::max(text * o.staged_texts(), o.kv_bytes + 2 * text);
  o.staging_bytes =
      chosen.staging_mib ? *chosen.staging_mib << 20U : std::max(usual_bytes, staging);
}

}  // namespace cohort::chat
