// SPDX-License-Identifier: Apache-2.0
/// @file
/// A row of the decode batch: which columns are its own.
#pragma once

#include <cohort/kv/batch/column_window.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <cstdint>
#include <vector>

namespace cohort::kv {

/// Columns [first, last) that lie within a slot's span but are not its own. The shaped insertion of
/// longer prompts leaves them behind in the older rows.
struct column_hole {
  logical_column first;
  logical_column last;
  friend bool operator==(const column_hole&, const column_hole&) = default;
};

/// One slot. Its own columns are [start, end) without its holes; if there are no holes, `start`
/// alone is the mask.
struct decode_slot {
  prepared who{};
  logical_column start = 0;
  std::vector<column_hole> holes{};
  bool live = false;
  bool pinned = false;  ///< Empty, but its columns are still being copied out.

  /// Calls f(first, last) for each interval of the slot's own columns; the window ends at `end`.
  template <class F>
  void for_each_interval(logical_column end, F f) const {
    logical_column at = start;
    for (const column_hole& h : holes) {
      f(at, h.first);
      at = h.last;
    }
    f(at, end);
  }
  /// Calls f(column_run) for the runs of memory that hold the slot's own columns, in order of
  /// position.
  template <class F>
  void for_each_run(const column_window& w, F f) const {
    for_each_interval(w.end(), [&](logical_column first, logical_column last) {
      w.for_each_run(first, last, f);
    });
  }
};

/// Pairs a slot's own columns in two mappings of one axis, run by run: add(from, to, count).
template <class Add>
void pair_runs(const column_window& from, const column_window& to, const decode_slot& s, Add add) {
  s.for_each_interval(from.end(), [&](logical_column first, logical_column last) {
    from.for_each_run(first, last, [&](column_run source) {
      std::uint32_t at = source.first;
      to.for_each_run(first, first + source.count, [&](column_run target) {
        add(at, target.first, target.count);
        at += target.count;
      });
      first += source.count;
    });
  });
}

}  // namespace cohort::kv
