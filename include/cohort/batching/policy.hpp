// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decisions of a staged-batching policy and the information it gets: the `staging_policy`
/// concept.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/batch_table.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/time.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::batching {

/// Requests that wait to enter, oldest first. A view; taking from the front or near it is cheap.
class waiting_list {
 public:
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(items_.size() - head_);
  }
  [[nodiscard]] bool empty() const noexcept { return head_ == items_.size(); }
  [[nodiscard]] const staged_request& operator[](std::uint32_t i) const noexcept {
    COHORT_ASSERT(i < size());
    return items_[head_ + i];
  }
  void reserve(std::size_t n) { items_.reserve(2 * n); }
  void push(const staged_request& r) {
    // Room at the front is reused before the memory grows.
    if (items_.size() == items_.capacity() && head_ >= items_.size() / 2) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    items_.push_back(r);
  }
  /// Removes and returns a request. O(i).
  staged_request take(std::uint32_t i) noexcept {
    const staged_request taken = (*this)[i];
    for (std::size_t k = head_ + i; k > head_; --k) items_[k] = items_[k - 1];
    if (++head_ == items_.size()) {
      items_.clear();
      head_ = 0;
    }
    return taken;
  }

 private:
  std::vector<staged_request> items_;
  std::size_t head_ = 0;
};

/// The information for the decision whether to make a row.
struct entry_view {
  time_point now;
  const waiting_list& waiting;       ///< Not empty.
  std::uint32_t eligible;            ///< How many of them may enter, from the oldest; at least 1.
  std::uint32_t rows;                ///< Rows that exist.
  std::uint32_t requests_in_flight;  ///< Requests in them.
  double running_share;              ///< Sum of the device shares of running items.
  bool window;      ///< A fixed window has closed: its requests are one row, or one a cluster.
  double rate = 0;  ///< Recent arrivals per millisecond; 0 if not known.
  std::uint32_t lanes = 1;               ///< Rows that can run side by side.
  std::span<const std::uint32_t> mix{};  ///< By bucket: how many of the latest arrivals have it.
};
/// Which of the fitting requests are taken into a row.
enum class fill_order : std::uint8_t {
  oldest,         ///< By age.
  same_bucket,    ///< By age, and only those of the row's own bucket.
  longest_first,  ///< Those that waste the least padding, then by age.
};
/// The row to make: `count` of the eligible requests whose bucket is at most `bucket`.
struct entry_decision {
  std::uint32_t count = 0;  ///< 0: none now.
  std::uint32_t bucket = 0;
  fill_order fill = fill_order::oldest;
  time_point again = never;  ///< With count 0: when to ask again.
};

/// The information at a hand-over: a row stands whole between two stages; or, for `stretch`, the
/// part of it that follows `row.issued[stage + 1]` requests that have gone ahead.
struct hand_over_view {
  time_point now;
  const batch_row& row;
  std::uint32_t stage;          ///< The stage it has left; never the last.
  const waiting_list& waiting;  ///< May be empty.
  std::uint32_t
      may_join;     ///< How many of them may be stretched into the row; 0 if it may not grow.
  double rate = 0;  ///< As in `entry_view`.
};

namespace requirement {
/// Optional. A class derived from a policy that has it must declare it again, or is asked at every
/// stage.
template <class P>
concept decides_run = std::same_as<typename P::run_to_of, P> &&
                      requires(const P& p, const batch_row& r, std::uint32_t stage) {
                        { p.run_to(r, stage) } noexcept -> std::same_as<std::uint32_t>;
                      };
}  // namespace requirement

/// A policy of staged batching: values in, decisions out; pure, quick, any thread.
/// * `entry(view)`: whether to make a row of waiting requests now, how large and padded to what.
/// * `stretches_on_arrival(row, n)`: whether n requests that arrive join the latest row at once.
/// * `stretch(view)`: how many waiting requests join a row at a hand-over, at most `may_join`.
/// * `split(view, sizes)`: writes the sizes of the parts, whose sum is the row's size, and returns
///   their number; 0 or 1 for no split. `sizes` has room for one part a request.
/// * `foresees_split(size)`: a row of that size will be split later and must not grow.
/// * `judge(request, stage)`: whether the request goes on after `stage`, skips the next one or
///   leaves. Asked once for each request and stage but the last, also of stragglers.
/// Asked at a hand-over in the order judge, stretch, split; a row that is stretched is not split
/// until the newcomers have caught up. Models: `plain_policy`, `whole_batch`, `diversity`.
///
/// It may have `run_to(row, stage)`, with `using run_to_of = ` its own type, so that a derived
/// policy with more decisions does not inherit it by accident. It is called when a row starts
/// `stage` on a device that runs one item at a time. It returns the last stage, at least `stage`,
/// that the row may run to without any of the calls above. Each hand-over saved saves two wake-ups.
/// Any value beyond the last stage means the last stage.
template <class P>
concept staging_policy =
    requires(const P& p, const entry_view& v, const staged_request& r, std::uint32_t stage) {
      { p.entry(v) } noexcept -> std::same_as<entry_decision>;
      { p.judge(r, stage) } noexcept -> std::same_as<verdict>;
    } && requires(const P& p, const hand_over_view& v, const batch_row& r, std::uint32_t n,
                  std::span<std::uint32_t> sizes) {
      { p.stretches_on_arrival(r, n) } noexcept -> std::same_as<bool>;
      { p.stretch(v) } noexcept -> std::same_as<std::uint32_t>;
      { p.split(v, sizes) } noexcept -> std::same_as<std::uint32_t>;
      { p.foresees_split(std::uint32_t{}) } noexcept -> std::same_as<bool>;
    };

/// Takes all waiting requests, up to the largest batch, and never changes a row. Derive from it and
/// override only the differences.
struct plain_policy {
  std::uint32_t batch_max = 64;

  [[nodiscard]] entry_decision entry(const entry_view& v) const noexcept {
    entry_decision d{.count = v.eligible < batch_max ? v.eligible : batch_max};
    for (std::uint32_t i = 0; i < d.count; ++i) {
      if (v.waiting[i].bucket > d.bucket) d.bucket = v.waiting[i].bucket;
    }
    return d;
  }
  [[nodiscard]] bool stretches_on_arrival(const batch_row&, std::uint32_t) const noexcept {
    return false;
  }
  [[nodiscard]] std::uint32_t stretch(const hand_over_view&) const noexcept { return 0; }
  [[nodiscard]] std::uint32_t split(const hand_over_view&,
                                    std::span<std::uint32_t>) const noexcept {
    return 0;
  }
  [[nodiscard]] bool foresees_split(std::uint32_t) const noexcept { return false; }
  [[nodiscard]] verdict judge(const staged_request&, std::uint32_t) const noexcept {
    return verdict::go_on;
  }
};
static_assert(staging_policy<plain_policy>);

}  // namespace cohort::batching
