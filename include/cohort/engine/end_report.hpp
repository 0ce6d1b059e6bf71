// SPDX-License-Identifier: Apache-2.0
/// @file
/// How backends tell an engine that batches or single requests have ended.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>

#include <atomic>

namespace cohort::engine {

namespace requirement {
template <class E>
concept hears_of_batch_ends = requires(E& e, device_entry at, bool failed) {
  e.complete(at, failed);
};
template <class E>
concept hears_of_request_ends = requires(E& e, device_entry at, const request& r, bool failed) {
  e.complete_request(at, r, failed);
};
template <class E>
concept can_be_nudged = requires(E& e, void (*publish)()) {
  e.nudge(publish);
};
}  // namespace requirement

/// What hears of ends: `complete(entry, failed)`, the oldest batch of the entry has ended;
/// `complete_request(entry, request, failed)`, a request that ends before its batch; and whose
/// thread can be woken: `nudge(publish)` calls `publish()` and then has the backend's `advance`
/// called. Thread safety: any thread. Models: `basic_engine`, `basic_loop`, `manual_engine`.
template <class E>
concept completion_target = requirement::hears_of_batch_ends<E> &&
    requirement::hears_of_request_ends<E> && requirement::can_be_nudged<E>;

/// Where a backend reports ends; `bind` it to the engine or loop. Thread safety: any thread, once
/// bound.
class end_report {
 public:
  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    engine_ = &engine;
    end_batch_ = [](void* e, device_entry at, bool failed) {
      static_cast<Engine*>(e)->complete(at, failed);
    };
    end_request_ = [](void* e, device_entry at, const request& r, bool failed) {
      static_cast<Engine*>(e)->complete_request(at, r, failed);
    };
    publish_ = [](void* e, std::atomic<int>& state, int value) {
      static_cast<Engine*>(e)->nudge([&] { state.store(value, std::memory_order_release); });
    };
  }

  /// The oldest batch of the entry; `failed` if without results.
  void batch_ended(device_entry at, bool failed) const noexcept { end_batch_(engine_, at, failed); }
  /// A request of a batch that goes on.
  void request_ended(device_entry at, const request& r, bool failed) const noexcept {
    end_request_(engine_, at, r, failed);
  }
  /// Stores a value for the loop's thread and wakes it.
  void publish(std::atomic<int>& state, int value) const noexcept {
    publish_(engine_, state, value);
  }

 private:
  void* engine_ = nullptr;
  void (*end_batch_)(void*, device_entry, bool) = nullptr;
  void (*end_request_)(void*, device_entry, const request&, bool) = nullptr;
  void (*publish_)(void*, std::atomic<int>&, int) = nullptr;
};

}  // namespace cohort::engine
