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
concept hears_of_batch_ends = requires(E& e, device_id d, bool failed) {
  e.complete(d, failed);
};
template <class E>
concept hears_of_request_ends = requires(E& e, device_id d, const request& r, bool failed) {
  e.complete_request(d, r, failed);
};
template <class E>
concept can_be_nudged = requires(E& e, void (*publish)()) {
  e.nudge(publish);
};
}  // namespace requirement

/// What hears of the ends of batches: `complete(device, failed)`, the oldest batch of the device
/// has ended. Thread safety: any thread. Models: `basic_engine`, `basic_loop`, `manual_engine`.
template <class E>
concept completion_target = requirement::hears_of_batch_ends<E>;

/// What also hears of requests that end before their batch, `complete_request(device, request,
/// failed)`, and whose thread can be woken: `nudge(publish)` calls `publish()` and then has the
/// backend's `advance` called. Thread safety: any thread. Models: `basic_engine`, `basic_loop`.
template <class E>
concept request_completion_target =
    completion_target<E> && requirement::hears_of_request_ends<E> && requirement::can_be_nudged<E>;

/// Where a backend reports the ends of its batches; `bind` it to the engine or loop.
class end_report {
 public:
  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    engine_ = &engine;
    call_ = [](void* e, device_id d, bool failed) { static_cast<Engine*>(e)->complete(d, failed); };
  }
  void operator()(device_id d, bool failed) const noexcept { call_(engine_, d, failed); }

 private:
  void* engine_ = nullptr;
  void (*call_)(void*, device_id, bool) = nullptr;
};

/// Where a backend that works on the loop's thread reports the ends of single requests, and from
/// other threads that there is something to do.
class request_report {
 public:
  template <request_completion_target Engine>
  void bind(Engine& engine) noexcept {
    batches_.bind(engine);
    engine_ = &engine;
    end_ = [](void* e, device_id d, const request& r, bool failed) {
      static_cast<Engine*>(e)->complete_request(d, r, failed);
    };
    publish_ = [](void* e, std::atomic<int>& state, int value) {
      static_cast<Engine*>(e)->nudge([&] { state.store(value, std::memory_order_release); });
    };
  }
  /// A request of a batch that goes on.
  void request_ended(device_id d, const request& r, bool failed) const noexcept {
    end_(engine_, d, r, failed);
  }
  /// The oldest batch of the device, all of whose requests have ended.
  void batch_ended(device_id d) const noexcept { batches_(d, false); }
  /// Stores a value for the loop's thread and wakes it. Any thread.
  void publish(std::atomic<int>& state, int value) const noexcept {
    publish_(engine_, state, value);
  }

 private:
  end_report batches_;
  void* engine_ = nullptr;
  void (*end_)(void*, device_id, const request&, bool) = nullptr;
  void (*publish_)(void*, std::atomic<int>&, int) = nullptr;
};

}  // namespace cohort::engine
