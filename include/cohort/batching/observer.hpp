// SPDX-License-Identifier: Apache-2.0
/// @file
/// How staged batching reports its decisions while it makes them.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/batch_table.hpp>
#include <cohort/core/time.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>

namespace cohort::batching {

/// The operations on the batch table.
enum class meta_op : std::uint8_t { make, stretch, split, leave, cancel, fail };

[[nodiscard]] constexpr std::string_view to_string(meta_op o) noexcept {
  constexpr std::string_view names[] = {"new", "stretch", "split", "leave", "cancel", "fail"};
  return names[static_cast<std::size_t>(o)];
}

/// Sees every operation on the batch table, every refusal with its reason, and every hand-over:
/// `made(row)`; `stretched(row, n)`: the row grew by n; `split(row, parts)`: the row is about to be
/// replaced by parts; `ended(row, slot, how)`: a request left it by `leave`, `cancel` or `fail`;
/// `refused(what, why)`; `launched(row, stage, item)`; `held(row, stage)`: stragglers are behind;
/// `pushed(row, stage, item)`: queued for the stage. The calls come on the deciding thread, must be
/// quick and must not call back. The observer is a compile-time parameter, so an empty one costs
/// nothing. Models: `null_batch_observer`.
template <class O>
concept batch_observer =
    requires(O& o, const batch_row& r, std::uint32_t n, time_point now, meta_op what,
             meta_refusal why, std::uint32_t stage, const item& i) {
      { o.made(r, now) } noexcept;
      { o.stretched(r, n, now) } noexcept;
      { o.split(r, n, now) } noexcept;
      { o.ended(r, n, meta_op::cancel, now) } noexcept;
      { o.refused(what, why, now) } noexcept;
      { o.launched(r, stage, i, now) } noexcept;
      { o.held(r, stage, now) } noexcept;
      { o.pushed(r, stage, i, now) } noexcept;
    };

/// Ignores all events. Derive from it to watch only some.
struct null_batch_observer {
  constexpr void made(const batch_row&, time_point) noexcept {}
  constexpr void stretched(const batch_row&, std::uint32_t, time_point) noexcept {}
  constexpr void split(const batch_row&, std::uint32_t, time_point) noexcept {}
  constexpr void ended(const batch_row&, std::uint32_t, meta_op, time_point) noexcept {}
  constexpr void refused(meta_op, meta_refusal, time_point) noexcept {}
  constexpr void launched(const batch_row&, std::uint32_t, const item&, time_point) noexcept {}
  constexpr void held(const batch_row&, std::uint32_t, time_point) noexcept {}
  constexpr void pushed(const batch_row&, std::uint32_t, const item&, time_point) noexcept {}
};
static_assert(batch_observer<null_batch_observer>);

}  // namespace cohort::batching
