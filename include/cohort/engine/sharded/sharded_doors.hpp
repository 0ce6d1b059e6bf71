// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of an engine's models shared by submitting, scheduling and running threads:
/// `sharded_doors`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace cohort::engine {

/// Admits requests, and counts for each model the waiting and unended requests and the work on
/// devices: so it is known when a removed model is gone, and when all requests have ended. An
/// atomic operation or two a call, no lock. Thread safety: `close` on the thread that calls `any`,
/// `begin_work` and `end_work`; `open` of an id by one; the rest from any thread.
class sharded_doors {
 public:
  /// Constant properties.
  struct traits {
    std::uint32_t capacity = 0;  ///< Maximum number of waiting requests.
    std::uint32_t max_request_size = UINT32_MAX;
    bool is_repeatable = false;
    duration least_time{};  ///< From arrival to deadline.
    duration longest_run{0};
  };

  /// @param emptied `emptied(id)` is called when the last request of a model has ended that is
  /// removed, or drained; and when its last work has ended.
  sharded_doors(std::uint32_t models, std::function<void(model_id)> emptied)
      : doors_{std::make_unique<door[]>(models)}, models_{models}, emptied_{std::move(emptied)} {}

  void open(model_id id, const traits& t) noexcept {
    of(id).is = t;
    of(id).is_open.store(true);
  }
  /// Admits no more requests. @returns Whether it did before.
  bool close(model_id id) noexcept {
    if (!is_accepting(id)) return false;
    of(id).is_open.store(false);  // First: the check for removal sees requests admitted before.
    of(id).is_removing.store(true);
    return true;
  }
  /// Admits no more requests of any model.
  void drain() noexcept { is_draining_.store(true); }
  [[nodiscard]] bool is_draining() const noexcept { return is_draining_.load(); }
  /// Whether it was closed and is not gone yet.
  [[nodiscard]] bool is_removing(model_id id) const noexcept {
    return doors_[id.index()].is_removing.load();
  }
  /// Whether a closed model is gone, with no request and no work left. True once.
  [[nodiscard]] bool take_gone(model_id id) noexcept {
    door& d = of(id);
    return d.is_removing.load() && d.counts.load() == 0 && d.work.load() == 0 &&
           d.is_removing.exchange(false);
  }

  /// Admits a request, which then counts as waiting, or returns why not.
  [[nodiscard]] std::optional<refusal> enter(const request& r, time_point now) noexcept {
    if (is_draining()) return refusal::draining;
    if (!is_accepting(r.model)) return refusal::unknown_model;
    door& d = of(r.model);
    if (r.size > d.is.max_request_size) return refusal::too_big;
    if (now + d.is.least_time > r.deadline) return refusal::deadline_infeasible;
    const std::uint64_t before = d.counts.fetch_add(one + waits);
    std::optional<refusal> why;
    if (waiting_of(before) >= d.is.capacity) why = refusal::queue_full;
    // Checked again: closing and draining look for admitted requests after that.
    if (!d.is_open.load()) why = refusal::unknown_model;
    if (is_draining()) why = refusal::draining;
    if (why) leave(r.model, true);
    return why;
  }
  /// Counts `n` requests as no longer waiting: they join a batch, or end.
  void stop_waiting(model_id id, std::uint32_t n) noexcept { of(id).counts.fetch_sub(n * waits); }
  /// Counts a request as waiting again.
  void wait_again(model_id id) noexcept { of(id).counts.fetch_add(waits); }
  /// Counts a request as ended. @param did_wait It still counts as waiting.
  void leave(model_id id, bool did_wait = false) noexcept {
    door& d = of(id);
    const std::uint64_t by = did_wait ? one + waits : one;
    if (d.counts.fetch_sub(by) == by && (d.is_removing.load() || is_draining())) emptied_(id);
  }

  /// For a batch, a probe or a move.
  void begin_work(model_id id) noexcept { of(id).work.fetch_add(1); }
  void end_work(model_id id) noexcept {
    if (of(id).work.fetch_sub(1) == 1 && of(id).is_removing.load()) emptied_(id);
  }
  /// A model that is not being removed, if there is one.
  /// @param behind If given, the next model after it in turn: itself only if there is no other.
  [[nodiscard]] std::optional<model_id> any(std::optional<model_id> behind = {}) const noexcept {
    const std::uint32_t first = behind ? behind->value() + 1 : 0;
    for (std::uint32_t i = 0; i < models_; ++i) {
      const model_id id{(first + i) % models_};
      if (doors_[id.index()].is_open.load()) return id;
    }
    return std::nullopt;
  }

  /// Whether its requests are admitted, unless drained.
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < models_ && doors_[id.index()].is_open.load(std::memory_order_acquire);
  }
  [[nodiscard]] const traits& operator[](model_id id) const noexcept {
    return doors_[id.index()].is;
  }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept {
    return waiting_of(doors_[id.index()].counts.load(std::memory_order_relaxed));
  }
  /// Requests of all models that have not ended.
  [[nodiscard]] std::size_t inside() const noexcept {
    std::size_t n = 0;
    for (std::uint32_t i = 0; i < models_; ++i) n += doors_[i].counts.load() / one;
    return n;
  }

 private:
  static constexpr std::uint64_t waits = 1;
  static constexpr std::uint64_t one = std::uint64_t{1} << 32;
  static std::uint32_t waiting_of(std::uint64_t counts) noexcept {
    return static_cast<std::uint32_t>(counts);
  }

  struct alignas(64) door {
    std::atomic<std::uint64_t> counts{0};  // Waiting requests, plus `one` for each unended one.
    std::atomic<bool> is_open{false};
    std::atomic<bool> is_removing{false};
    std::atomic<std::uint32_t> work{0};
    traits is{};
  };
  [[nodiscard]] door& of(model_id id) noexcept { return doors_[id.index()]; }

  std::unique_ptr<door[]> doors_;
  std::uint32_t models_;
  std::function<void(model_id)> emptied_;
  std::atomic<bool> is_draining_{false};
};

}  // namespace cohort::engine
