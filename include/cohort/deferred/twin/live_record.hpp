// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many requests of the last moments were bad: `live_record`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::deferred {

/// Counts the requests that were dropped or, to within a batch's size, late, from what passes
/// through a scheduler. Of a batch it keeps the first and the last deadline and takes the others to
/// lie evenly between. O(1) a call; allocates in `add_device` and `mark`. Thread safety: none.
class live_record {
 public:
  explicit live_record(duration response = duration{0}) : response_{response} {
    marks_.reserve(128);
  }

  void add_device(device_id d, std::uint32_t capacity) {
    if (d.index() >= devices_.size()) devices_.resize(d.index() + 1);
    devices_[d.index()].assign(capacity, {});
  }
  void arrived() noexcept { ++now_.arrived; }
  void dropped() noexcept { ++now_.bad; }
  void dispatched(const batch& b) noexcept {
    lane& l = devices_[b.device.index()][b.entry];
    COHORT_ASSERT(l.count < l.sent.size());
    l.sent[l.count++] = {b.size(), b.requests.front().deadline, b.requests.back().deadline};
  }
  void completed(device_entry at, time_point now, bool failed) noexcept {
    lane& l = devices_[at.device.index()][at.entry];
    COHORT_ASSERT(l.count > 0);
    const sent_batch b = l.sent[0];
    l.sent[0] = l.sent[1];
    --l.count;
    const duration over = now + response_ - b.first;
    if (failed || over > b.last - b.first) {
      now_.bad += b.size;
    } else if (over > duration{0}) {
      const double part = to_seconds(over) / std::max(1e-9, to_seconds(b.last - b.first));
      now_.bad += std::max(1U, static_cast<std::uint32_t>(part * b.size));
    }
  }

  /// Remembers the counts of this instant, and forgets those of long before.
  void mark(time_point now, duration longest) {
    std::erase_if(marks_, [&](const counts& c) { return c.at < now - 2 * longest; });
    marks_.push_back(now_);
    marks_.back().at = now;
  }
  /// Which share of those that arrived since the last mark at or before `from` was bad; nothing if
  /// there is no such mark or nobody has arrived.
  [[nodiscard]] std::optional<double> bad_since(time_point from) const noexcept {
    const auto after = std::ranges::upper_bound(marks_, from, {}, &counts::at);
    if (after == marks_.begin()) return std::nullopt;
    const counts& then = *(after - 1);
    if (now_.arrived == then.arrived) return std::nullopt;
    return static_cast<double>(now_.bad - then.bad) /
           static_cast<double>(now_.arrived - then.arrived);
  }

 private:
  struct sent_batch {
    std::uint32_t size = 0;
    time_point first;  // Deadlines.
    time_point last;
  };
  struct lane {
    std::array<sent_batch, rank::entry_depth> sent{};
    std::uint32_t count = 0;
  };
  struct counts {
    time_point at;
    std::uint64_t arrived = 0;
    std::uint64_t bad = 0;
  };

  duration response_;
  std::vector<std::vector<lane>> devices_;  // Their entries.
  counts now_;
  std::vector<counts> marks_;
};

}  // namespace cohort::deferred
