// SPDX-License-Identifier: Apache-2.0
/// @file
/// What threads that submit requests need to know of models: `model_door`, and the `model_doors` of
/// a loop.
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

/// Lets requests of a model in without asking the core. Its loop writes it, but for `waiting`.
/// Thread safety: the atomics and `enter` from any thread, the rest from the loop's.
struct model_door {
  std::atomic<bool> open{false};
  std::atomic<std::uint32_t> waiting{0};  ///< For a batch, or on the way to the loop.
  std::atomic<bool> has_device{false};
  std::atomic<std::uint32_t> capacity{0};
  std::atomic<std::uint32_t> max_request_size{0};
  std::atomic<duration> least_time{duration{0}};
  duration slo{0};
  std::function<void()> gone;

  /// Counts a request among those that wait, or says why not. Of one that is open.
  [[nodiscard]] std::optional<refusal> enter(const request& r, time_point now) noexcept {
    // Asked again on the loop's thread: the model may just have made way for another.
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
  /// One of those that wait does so no more.
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

  /// Counts a request among those that wait, or says why not: `unknown_model` if none is open.
  [[nodiscard]] std::optional<refusal> enter(const request& r, time_point now) noexcept {
    if (!is_accepting(r.model)) return refusal::unknown_model;
    return doors_[r.model.index()].enter(r, now);
  }
  void leave(model_id id) noexcept { doors_[id.index()].leave(); }
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < most_ && doors_[id.index()].open.load(std::memory_order_acquire);
  }
  /// Requests that wait for a batch: a snapshot.
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept {
    return doors_[id.index()].waiting.load(std::memory_order_relaxed);
  }
  /// Whether a device that may run the model is in service: a snapshot.
  [[nodiscard]] bool has_device(model_id id) const noexcept {
    return doors_[id.index()].has_device.load(std::memory_order_relaxed);
  }

  /// @throws config_error If there is no room for another model.
  void expect_room() const { expects(models_ < most_, "engine: more models than max_models"); }
  /// Opens the door of a model that was added. @param models As a scheduler's, with its least time.
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
    // `waiting` stays: who is on the way to an earlier model of the id is counted there, and will
    // leave it.
    d.open.store(true, std::memory_order_release);
  }
  /// Closes it. @param gone What `removed` returns.
  void close(model_id id, std::function<void()> gone) noexcept {
    doors_[id.index()].open.store(false, std::memory_order_release);
    doors_[id.index()].gone = std::move(gone);
  }
  /// A model that was closed has ended. @returns Whom to tell, or an empty function.
  [[nodiscard]] std::function<void()> removed(model_id id) noexcept {
    --models_;
    return std::exchange(doors_[id.index()].gone, {});
  }
  /// The least times of models may have changed, as batches share a device.
  void set_least_times(const auto& models) noexcept {
    for (std::uint32_t i = 0; i < ids_; ++i) {
      const model_id id{i};
      if (is_accepting(id)) {
        doors_[i].least_time.store(models.least_time(id), std::memory_order_relaxed);
      }
    }
  }
  /// @param core Its `has_device(id)` of some models may have changed.
  [[gnu::cold]] void set_devices(const auto& core) noexcept {
    for (std::uint32_t i = 0; i < ids_; ++i) {
      doors_[i].has_device.store(core.has_device(model_id{i}), std::memory_order_relaxed);
    }
  }
  /// So many requests stop to wait, as their batch starts.
  void launched(model_id id, std::uint32_t count) noexcept {
    doors_[id.index()].waiting.fetch_sub(count, std::memory_order_relaxed);
  }
  /// A request waits again.
  void wait_again(model_id id) noexcept {
    doors_[id.index()].waiting.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] duration slo(model_id id) const noexcept { return doors_[id.index()].slo; }

 private:
  std::unique_ptr<model_door[]> doors_;
  std::uint32_t most_;
  std::uint32_t models_ = 0;
  std::uint32_t ids_ = 0;  // So many they have had; the least one is free for the next.
};

}  // namespace cohort::engine
