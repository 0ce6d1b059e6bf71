// SPDX-License-Identifier: Apache-2.0
/// @file
/// How backends tell an engine that batches or single requests have ended.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>

#include <atomic>

namespace cohort::engine {

/// Where a backend reports the ends of its batches; `bind` it to the engine or loop.
class end_report {
 public:
  template <class Engine>
  void bind(Engine& engine) noexcept {
    engine_ = &engine;
    call_ = [](void* e, device_entry at, bool failed) {
      static_cast<Engine*>(e)->complete(at, failed);
    };
  }
  void operator()(device_entry at, bool failed) const noexcept { call_(engine_, at, failed); }

 private:
  void* engine_ = nullptr;
  void (*call_)(void*, device_entry, bool) = nullptr;
};

/// Where a backend that works on the loop's thread reports the ends of single requests, and from
/// other threads that there is something to do.
class request_report {
 public:
  template <class Engine>
  void bind(Engine& engine) noexcept {
    batches_.bind(engine);
    engine_ = &engine;
    end_ = [](void* e, device_entry at, const request& r, bool failed) {
      static_cast<Engine*>(e)->complete_request(at, r, failed);
    };
    publish_ = [](void* e, std::atomic<int>& state, int value) {
      static_cast<Engine*>(e)->nudge([&] { state.store(value, std::memory_order_release); });
    };
  }
  /// A request of a batch that goes on.
  void request_ended(device_entry at, const request& r, bool failed) const noexcept {
    end_(engine_, at, r, failed);
  }
  /// The oldest batch of the entry, all of whose requests have ended.
  void batch_ended(device_entry at) const noexcept { batches_(at, false); }
  /// Stores a value for the loop's thread and wakes it. Any thread.
  void publish(std::atomic<int>& state, int value) const noexcept {
    publish_(engine_, state, value);
  }

 private:
  end_report batches_;
  void* engine_ = nullptr;
  void (*end_)(void*, device_entry, const request&, bool) = nullptr;
  void (*publish_)(void*, std::atomic<int>&, int) = nullptr;
};

}  // namespace cohort::engine
