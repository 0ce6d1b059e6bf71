// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sequence between two runs of the decode batch, and how a sequence ends.
#pragma once

#include <cohort/core/ids.hpp>

#include <cstdint>
#include <string_view>

namespace cohort::kv {

/// A token position on the batch's endless axis. 64 bits: it counts all columns ever written.
using logical_column = std::uint64_t;

/// A token of the vocabulary.
using token_id = std::int32_t;

/// Why a sequence got its one final event.
enum class finish_reason : std::uint8_t {
  stop,            ///< A stop token or stop string was produced.
  length,          ///< `max_new` tokens were produced.
  context_length,  ///< The model has no position for another token.
  cancelled,       ///< The caller cancelled it.
  deadline,        ///< Its deadline passed first.
  rejected,        ///< Never accepted: it could not run even alone.
  error,           ///< The device failed while serving it.
};

[[nodiscard]] constexpr std::string_view to_string(finish_reason r) noexcept {
  switch (r) {
    case finish_reason::stop:
      return "stop";
    case finish_reason::length:
      return "length";
    case finish_reason::context_length:
      return "context_length";
    case finish_reason::cancelled:
      return "cancelled";
    case finish_reason::deadline:
      return "deadline";
    case finish_reason::rejected:
      return "rejected";
    case finish_reason::error:
      return "error";
  }
  return "?";
}

/// Where packed keys and values lie.
enum class kv_place : std::uint8_t { device, host };

/// A sequence with its keys and values packed, either prefilled or preempted. One type serves for
/// both because only `produced` differs. Data that the columns do not hold (the text so far,
/// sampler, stop strings) stays in the caller's object of that id and need not move at all.
///
/// Counting law: length = prompt + produced − 1. The token at index j of the packed columns sits at
/// position j; the next input is `pending`, at position `length`. The keys and values of the last
/// token are never written.
struct prepared {
  request_id id{};             ///< The caller's name for it.
  std::uint64_t storage = 0;   ///< The packed columns, as the owner of memory names them.
  std::uint32_t prompt = 0;    ///< Tokens of the prompt; at least 1.
  std::uint32_t length = 0;    ///< Columns it owns.
  std::uint32_t produced = 0;  ///< Tokens produced so far, including the one from prefill.
  token_id pending = 0;        ///< The token produced last; not yet in the columns.
  std::uint8_t priority = 0;   ///< 0 is the most important.
  bool was_running = false;    ///< Preempted, not fresh from prefill.
  kv_place where = kv_place::device;

  friend bool operator==(const prepared&, const prepared&) = default;
};

/// Whether the counting law holds: true of every sequence between two iterations.
[[nodiscard]] constexpr bool obeys_counting_law(const prepared& p) noexcept {
  return p.prompt >= 1 && p.produced >= 1 &&
         std::uint64_t{p.length} + 1 == std::uint64_t{p.prompt} + p.produced;
}

}  // namespace cohort::kv
