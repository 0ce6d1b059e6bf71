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
/// gets the nearest whole number of steps, at least one. If fewer are free it gets fewer, but not
/// below its share rounded down, so shares that sum to the device never overlap because of
/// rounding. Beyond that, a share overlaps on the steps with the fewest users. Thread safety: none.
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
  /// Takes the steps again, even if other shares use them.
  void retake(const std::vector<unsigned>& steps) noexcept {
    for (const unsigned i : steps) ++users_[i];
  }
  /// Takes back steps returned by `take`.
  void give_back(const std::vector<unsigned>& steps) noexcept {
    for (const unsigned i : steps) --users_[i];
  }

  [[nodiscard]] unsigned steps() const noexcept { return static_cast<unsigned>(users_.size()); }
  /// How many shares use a step.
  [[nodiscard]] unsigned users(unsigned step) const { return users_.at(step); }

 private:
  std::vector<unsigned> users_;
};

/// Contexts of ended partitions, kept for later partitions with the same steps. There may be
/// several for the same steps, where shares overlapped. A value. Thread safety: none.
template <class Context>
class kept_contexts {
 public:
  explicit kept_contexts(std::size_t most) : most_{most} {}

  /// @returns The context that is no longer kept because there are too many: one of the steps
  ///         unused for longest.
  /// @throws std::bad_alloc The context is then not kept.
  [[nodiscard]] std::optional<Context> keep(std::vector<unsigned> steps, Context c) {
    kept_.emplace_back(std::move(steps), c);
    if (kept_.size() <= most_) return std::nullopt;
    const Context oldest = kept_.front().second;
    kept_.pop_front();
    return oldest;
  }
  /// A kept context of these steps, if there is one.
  [[nodiscard]] std::optional<Context> take(const std::vector<unsigned>& steps) {
    const auto found = std::ranges::find(kept_, steps, &entry::first);
    if (found == kept_.end()) return std::nullopt;
    const Context c = found->second;
    kept_.erase(found);
    return c;
  }
  /// Calls a function for each kept context.
  template <class F>
  void each(F f) const {
    for (const entry& e : kept_) f(e.second);
  }

 private:
  using entry = std::pair<std::vector<unsigned>, Context>;
  std::size_t most_;
  std::deque<entry> kept_;  // Oldest first.
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
  /// The device's steps that it has, ascending; none once another context took its place.
  [[nodiscard]] const std::vector<unsigned>& steps() const noexcept { return steps_; }
  /// Number of its multiprocessors, after rounding the share.
  [[nodiscard]] unsigned multiprocessors() const noexcept { return multiprocessors_; }
  /// Takes its steps back after the context meant to replace it failed to do so.
  void reclaim() noexcept;

 private:
  friend class partitioner;
  green_context() = default;

  std::shared_ptr<class partitioner> owner_;
  std::vector<unsigned> steps_;
  std::vector<unsigned> made_of_;  // Steps of the native context.
  void* native_ = nullptr;         // CUgreenCtx.
  unsigned multiprocessors_ = 0;
};

/// Divides one device. The first partition of given steps takes the driver milliseconds, and it
/// waits until no kernel runs on the device; so up to 64 ended partitions are kept, and a request
/// for the same steps reuses one at once. Thread safety: any thread.
class partitioner : public std::enable_shared_from_this<partitioner> {
 public:
  /// Never throws for a device that cannot be partitioned: see `reason`.
  [[nodiscard]] static std::shared_ptr<partitioner> make(int device);
  ~partitioner();
  partitioner(const partitioner&) = delete;
  partitioner& operator=(const partitioner&) = delete;

  /// A partition of about `share`. All streams of it must be destroyed before it is.
  /// @param instead_of A partition to be replaced: its multiprocessors count as free from now on,
  ///   since its work moves to the new one. Unchanged if this throws.
  /// @throws resource_error If the device cannot be partitioned, with the reason.
  /// @throws cuda_error If the driver refuses.
  [[nodiscard]] std::unique_ptr<green_context> make_partition(device_share share,
                                                              green_context* instead_of = nullptr);

  /// Multiprocessors of one step; 0 if the device cannot be partitioned. The last step also has the
  /// device's remaining multiprocessors.
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
  std::unique_ptr<resources> resources_;  // The device's steps and the kept contexts.
  std::mutex mutex_;
  std::unique_ptr<step_allocator> allocator_;
};

}  // namespace cohort::runtime::cuda
