// SPDX-License-Identifier: Apache-2.0
/// @file
/// What pickers tell a gateway: `picker_answer`, and `picker_sink`, which hears it.
#pragma once

#include <cohort/cluster/endpoint_table.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <cstdint>

namespace cohort::cluster {

/// What a gateway is to do with a request.
enum class answer_kind : std::uint8_t {
  pick,         ///< Send it to the endpoint.
  shed,         ///< Refuse it: it would be late (429).
  unavailable,  ///< Refuse it: no endpoint, or this picker does not lead (503).
};

/// The one answer to a stream.
struct picker_answer {
  request_id stream;
  answer_kind kind = answer_kind::unavailable;
  endpoint_id endpoint{};   ///< Of a pick.
  std::uint64_t batch = 0;  ///< Of a pick: streams with the same number form a batch; 0: none.
  std::uint32_t size = 0;   ///< Of a pick: how many streams that batch has.
  std::uint64_t epoch = 0;  ///< Of the picker's term.
  duration retry_after{0};  ///< Of a shed stream: a like one would be taken after this; 0: unknown.
};

/// Hears a picker, during the picker's calls: `answer(const picker_answer&)`, once for each stream
/// that the gateway has not closed, and `over(request_id, outcome)`, once for each stream that was
/// picked or refused. It must not call back into the picker, and must not throw.
template <class S>
concept picker_sink = requires(S& s, const picker_answer& a, request_id id, outcome how) {
  { s.answer(a) } noexcept;
  { s.over(id, how) } noexcept;
};

}  // namespace cohort::cluster
