// SPDX-License-Identifier: Apache-2.0
/// @file
/// Partitions of a GPU: which multiprocessors a share gets, and the green context that holds them.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::runtime::cuda {

/// The nearest whole number of a device's steps for a share, at least one.
[[nodiscard]] constexpr unsigned steps_of(device_share share, unsigned steps) noexcept {
  return std::max(1U, (steps * share.percent() + 50) / 100);
}

/// Hands out steps of multiprocessors to shares of a device, disjoint as long as they fit. A share
/// gets the nearest whole number of steps, at least one, less if fewer are free but not below its
/// share rounded down: so shares that sum to the device never overlap because of rounding. Beyond
/// that, shares overlap where the fewest others are. Thread safety: none.
class step_allocator {
 public:
  /// @param steps At least 1.
  explicit step_allocator(unsigned steps) : users_(steps, 0) {
    expects(steps > 0, "step_allocator: steps must be at least 1");
  }

  /// The steps for a share, ascending. Complexity: linear in the steps, times their logarithm.
  [[nodiscard]] std::vector<unsigned> take(device_share share) {
    const auto all = static_cast<unsigned>(users_.size());
    const unsigned least = std::max(1U, all * share.percent() / 100);
    const unsigned nearest = steps_of(share, all);
    const auto idle = static_cast<unsigned>(std::ranges::count(users_, 0U));
    const unsigned count = std::clamp(idle, least, nearest);
    std::vector<unsigned> order(all);
    for (unsigned i = 0; i < all; ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](unsigned i) { return std::pair{users_[i], i}; });
    order.resize(count);
    std::ranges::sort(order);
    for (const unsigned i : order) ++users_[i];
    return order;
  }
  /// Takes them again, whoever else has.
  void retake(const std::vector<unsigned>& steps) noexcept {
    for (const unsigned i : steps) ++users_[i];
  }
  /// Takes back what `take` gave.
  void give_back(const std::vector<unsigned>& steps) noexcept {
    for (const unsigned i : steps) --users_[i];
  }

  [[nodiscard]] unsigned steps() const noexcept { return static_cast<unsigned>(users_.size()); }
  /// How many shares use a step.
  [[nodiscard]] unsigned users(unsigned step) const { return users_.at(step); }

 private:
  std::vector<unsigned> users_;
};

/// Contexts of partitions that ended, for the next ones of the same steps. Of the same steps there
/// may be several, where shares overlapped. A value. Thread safety: none.
template <class Context>
class kept_contexts {
 public:
  explicit kept_contexts(std::size_t most) : most_{most} {}

  /// @returns One that is kept no longer, as there are too many: of those not asked for longest.
  /// @throws std::bad_alloc Then it is not kept.
  [[nodiscard]] std::optional<Context> keep(std::vector<unsigned> steps, Context c) {
    kept_.emplace_back(std::move(steps), c);
    if (kept_.size() <= most_) return std::nullopt;
    const Context oldest = kept_.front().second;
    kept_.pop_front();
    return oldest;
  }
  /// Of these steps, if there is one.
  [[nodiscard]] std::optional<Context> take(const std::vector<unsigned>& steps) {
    const auto found = std::ranges::find(kept_, steps, &entry::first);
    if (found == kept_.end()) return std::nullopt;
    const Context c = found->second;
    kept_.erase(found);
    return c;
  }
  /// Each, once more.
  template <class F>
  void each(F f) const {
    for (const entry& e : kept_) f(e.second);
  }

 private:
  using entry = std::pair<std::vector<unsigned>, Context>;
  std::size_t most_;
  std::deque<entry> kept_;  // The one that ended first is the first.
};

namespace detail {
class green_driver;
}

/// The green context of one partition, and how much of the device it got. Movable by pointer only.
class green_context {
 public:
  ~green_context();
  green_context(const green_context&) = delete;
  green_context& operator=(const green_context&) = delete;

  /// A stream whose kernels run on the partition's multiprocessors. @throws cuda_error
  [[nodiscard]] stream make_stream() const;
  /// Which steps of the device it has, ascending; none once another took its place.
  [[nodiscard]] const std::vector<unsigned>& steps() const noexcept { return steps_; }
  /// Those it has: what the share was rounded to.
  [[nodiscard]] unsigned multiprocessors() const noexcept { return multiprocessors_; }
  /// Has its steps again, after one that was to take its place did not.
  void reclaim() noexcept;

 private:
  friend class partitioner;
  green_context() = default;

  std::shared_ptr<class partitioner> owner_;
  std::vector<unsigned> steps_;
  std::vector<unsigned> made_of_;  // Those of the native context.
  void* native_ = nullptr;         // CUgreenCtx.
  unsigned multiprocessors_ = 0;
};

/// Divides one device. The first partition of given steps takes the driver milliseconds, and it
/// waits until no kernel runs on the device; so up to 64 partitions that ended are kept, and one of
/// the same steps is the same again, at once. Thread safety: any thread.
class partitioner : public std::enable_shared_from_this<partitioner> {
 public:
  /// Never throws for a device that cannot be partitioned: see `reason`.
  [[nodiscard]] static std::shared_ptr<partitioner> make(int device);
  ~partitioner();
  partitioner(const partitioner&) = delete;
  partitioner& operator=(const partitioner&) = delete;

  /// A partition of about `share`. All streams of it must be destroyed before it is.
  /// @param instead_of One whose multiprocessors count as free from now on, since its work moves
  ///   here; unchanged if this throws.
  /// @throws resource_error If the device cannot be partitioned, with the reason.
  /// @throws cuda_error If the driver refuses.
  [[nodiscard]] std::unique_ptr<green_context> make_partition(device_share share,
                                                              green_context* instead_of = nullptr);

  /// Multiprocessors of one step; 0 if the device cannot be partitioned. The last step also has
  /// those that the device has left over.
  [[nodiscard]] unsigned step() const noexcept { return step_; }
  /// How many steps the device has.
  [[nodiscard]] unsigned steps() const noexcept { return steps_; }
  /// Why it cannot be partitioned; empty if it can.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  friend class green_context;
  struct resources;
  explicit partitioner(int device);
  void take_back(green_context& g) noexcept;

  int device_;
  unsigned step_ = 0;
  unsigned steps_ = 0;
  std::string reason_;
  std::unique_ptr<resources> resources_;  // What the device was split into, and what is kept.
  std::mutex mutex_;
  std::unique_ptr<step_allocator> allocator_;
};

}  // namespace cohort::runtime::cuda
