// SPDX-License-Identifier: Apache-2.0
/// @file
/// How backends tell an engine that batches or single requests have ended.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>
#include <utility>

namespace cohort::engine {

namespace requirement {
template <class E>
concept hears_of_batch_ends =
    requires(E& e, batch_ticket at, bool failed) { e.complete(at, failed); };
template <class E>
concept hears_of_request_ends = requires(E& e, batch_ticket at, const request& r, bool failed) {
  e.complete_request(at, r, failed);
};
template <class E>
concept hears_of_probe_ends =
    requires(E& e, device_id d, bool failed) { e.complete_probe(d, failed); };
template <class E>
concept can_be_nudged = requires(E& e, void (*publish)()) { e.nudge(publish); };
}  // namespace requirement

/// What hears of ends: `complete(ticket, failed)`, a batch has ended; `complete_request(ticket,
/// request, failed)`, a request that ends before its batch; `complete_probe(device, failed)`, a
/// probe; and whose thread can be woken: `nudge(publish)` calls
/// `publish()` and then has the backend's `advance` called. Thread safety: any thread. Models:
/// `basic_engine`, `basic_loop`, `manual_engine`.
template <class E>
concept completion_target =
    requirement::hears_of_batch_ends<E> && requirement::hears_of_request_ends<E> &&
    requirement::hears_of_probe_ends<E> && requirement::can_be_nudged<E>;

/// Where a backend reports ends; `bind` it to the engine or loop, and `unbind` it before that goes:
/// a device may tell of a batch that was given up much later, and then tells nobody. Thread safety:
/// any thread.
class end_report {
 public:
  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    const std::lock_guard lock{mutex_};
    engine_ = &engine;
    end_batch_ = [](void* e, batch_ticket at, bool failed) {
      static_cast<Engine*>(e)->complete(at, failed);
    };
    end_request_ = [](void* e, batch_ticket at, const request& r, bool failed) {
      static_cast<Engine*>(e)->complete_request(at, r, failed);
    };
    end_probe_ = [](void* e, device_id d, bool failed) {
      static_cast<Engine*>(e)->complete_probe(d, failed);
    };
    publish_ = [](void* e, std::atomic<int>& state, int value) {
      static_cast<Engine*>(e)->nudge([&] { state.store(value, std::memory_order_release); });
    };
  }
  /// When it returns nobody is being told anything, nor will be.
  void unbind() noexcept {
    const std::lock_guard lock{mutex_};
    engine_ = nullptr;
  }

  /// `failed` if without results.
  void batch_ended(batch_ticket at, bool failed) const noexcept { tell(end_batch_, at, failed); }
  /// A request of a batch that goes on.
  void request_ended(batch_ticket at, const request& r, bool failed) const noexcept {
    tell(end_request_, at, r, failed);
  }
  /// A probe of a device.
  void probe_ended(device_id d, bool failed) const noexcept { tell(end_probe_, d, failed); }
  /// From now on `listener(device, text)` hears why batches fail, on the thread that finds out; it
  /// must not throw. Before there are devices.
  void on_failure(std::function<void(device_id, std::string_view)> listener) {
    listener_ = std::move(listener);
  }
  /// Why a batch of the device fails.
  void failure(device_id d, std::string_view text) const noexcept {
    if (listener_) listener_(d, text);
  }
  /// Stores a value for the loop's thread and wakes it.
  void publish(std::atomic<int>& state, int value) const noexcept { tell(publish_, state, value); }

 private:
  template <class... Ts>
  void tell(void (*const& how)(void*, Ts...), auto&&... what) const noexcept {
    const std::lock_guard lock{mutex_};
    if (engine_ != nullptr) how(engine_, what...);
  }

  mutable std::mutex mutex_;
  std::function<void(device_id, std::string_view)> listener_;
  void* engine_ = nullptr;
  void (*end_batch_)(void*, batch_ticket, bool) = nullptr;
  void (*end_request_)(void*, batch_ticket, const request&, bool) = nullptr;
  void (*end_probe_)(void*, device_id, bool) = nullptr;
  void (*publish_)(void*, std::atomic<int>&, int) = nullptr;
};

}  // namespace cohort::engine
