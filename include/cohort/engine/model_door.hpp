// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's state for threads that submit requests: `model_door`, and the `model_doors` of a loop.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace cohort::engine {

/// Admits requests of a model without asking the core. Its loop writes it, except `waiting`. Thread
/// safety: the atomics and `enter` from any thread, the rest from the loop's.
struct model_door {
  std::atomic<bool> open{false};
  std::atomic<std::uint32_t> waiting{0};  ///< For a batch, or on the way to the loop.
  std::atomic<bool> has_device{false};
  std::atomic<std::uint32_t> capacity{0};
  std::atomic<std::uint32_t> max_request_size{0};
  std::atomic<duration> least_time{duration{0}};
  duration slo{0};
  std::function<void()> gone;

  /// Counts a request as waiting, or returns why not. The door must be open.
  [[nodiscard]] std::optional<refusal> enter(const request& r, time_point now) noexcept {
    // Checked again on the loop's thread: another model may just have replaced this one.
    if (r.size > max_request_size.load(std::memory_order_relaxed)) return refusal::too_big;
    if (now + least_time.load(std::memory_order_relaxed) > r.deadline) {
      return refusal::deadline_infeasible;
    }
    if (waiting.fetch_add(1, std::memory_order_relaxed) >=
        capacity.load(std::memory_order_relaxed)) {
      leave();
      return refusal::queue_full;
    }
    return std::nullopt;
  }
  /// Counts a request as no longer waiting.
  void leave() noexcept { waiting.fetch_sub(1, std::memory_order_relaxed); }
};

/// The doors of the models of one loop, by id. Thread safety: `enter`, `leave`, `is_accepting`,
/// `waiting` and `has_device` from any thread, the rest from the loop's.
class model_doors {
 public:
  /// @param most Models at one time.  @throws config_error If it is 0.
  explicit model_doors(std::uint32_t most)
      : doors_{std::make_unique<model_door[]>(most)}, most_{most} {
    expects(most > 0, "loop_options: max_models must be at least 1");
  }

  /// Counts a request as waiting, or returns why not: `unknown_model` if the door is not open.
  [[nodiscard]] std::optional<refusal> enter(const request& r, time_point now) noexcept {
    if (!is_accepting(r.model)) return refusal::unknown_model;
    return doors_[r.model.index()].enter(r, now);
  }
  void leave(model_id id) noexcept { doors_[id.index()].leave(); }
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < most_ && doors_[id.index()].open.load(std::memory_order_acquire);
  }
  /// Number of requests that wait for a batch: a snapshot.
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept {
    return doors_[id.index()].waiting.load(std::memory_order_relaxed);
  }
  /// Whether a device that may run the model is in service: a snapshot.
  [[nodiscard]] bool has_device(model_id id) const noexcept {
    return doors_[id.index()].has_device.load(std::memory_order_relaxed);
  }

  /// @throws config_error If there is no room for another model.
  void expect_room() const { expects(models_ < most_, "engine: more models than max_models"); }
  /// Opens the door of a new model. @param models As a scheduler's, with its least time.
  void open(model_id id, std::uint32_t capacity, std::uint32_t max_request_size, duration slo,
            bool has_device, const auto& models) noexcept {
    ++models_;
    ids_ = std::max(ids_, id.value() + 1);
    model_door& d = doors_[id.index()];
    d.capacity.store(capacity, std::memory_order_relaxed);
    d.slo = slo;
    d.max_request_size.store(max_request_size, std::memory_order_relaxed);
    d.least_time.store(models.least_time(id), std::memory_order_relaxed);
    d.has_device.store(has_device, std::memory_order_relaxed);
    // `waiting` stays: requests on the way to an earlier model with this id are counted and leave.
    d.open.store(true, std::memory_order_release);
  }
  /// Closes it. @param gone Returned by `removed`.
  void close(model_id id, std::function<void()> gone) noexcept {
    doors_[id.index()].open.store(false, std::memory_order_release);
    doors_[id.index()].gone = std::move(gone);
  }
  /// Ends a closed model. @returns The function to call, or an empty one.
  [[nodiscard]] std::function<void()> removed(model_id id) noexcept {
    --models_;
    return std::exchange(doors_[id.index()].gone, {});
  }
  /// Updates the least times of models, which change as batches share a device.
  void set_least_times(const auto& models) noexcept {
    for (std::uint32_t i = 0; i < ids_; ++i) {
      const model_id id{i};
      if (is_accepting(id)) {
        doors_[i].least_time.store(models.least_time(id), std::memory_order_relaxed);
      }
    }
  }
  /// @param core Its `has_device(id)` may have changed for some models.
  [[gnu::cold]] void set_devices(const auto& core) noexcept {
    for (std::uint32_t i = 0; i < ids_; ++i) {
      doors_[i].has_device.store(core.has_device(model_id{i}), std::memory_order_relaxed);
    }
  }
  /// Counts requests as no longer waiting when their batch starts.
  void launched(model_id id, std::uint32_t count) noexcept {
    doors_[id.index()].waiting.fetch_sub(count, std::memory_order_relaxed);
  }
  /// Counts a request as waiting again.
  void wait_again(model_id id) noexcept {
    doors_[id.index()].waiting.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] duration slo(model_id id) const noexcept { return doors_[id.index()].slo; }

 private:
  std::unique_ptr<model_door[]> doors_;
  std::uint32_t most_;
  std::uint32_t models_ = 0;
  std::uint32_t ids_ = 0;  // Ids used so far; the smallest free one is next.
};

}  // namespace cohort::engine
