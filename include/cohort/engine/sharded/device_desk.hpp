// SPDX-License-Identifier: Apache-2.0
/// @file
/// Manages an engine's devices on the rank's thread: `device_desk`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/device_half.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/inbox.hpp>
#include <cohort/engine/sharded/shard_desk.hpp>
#include <cohort/engine/sharded/sharded_doors.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Launches the shards' batches in the order in which their entries were granted, and has a
/// `device_half` track them; requests return to their shards as they end. Thread safety: `complete`
/// and its variants, `has_work` and snapshots from any thread; the rest on the rank's.
template <backend Backend>
class device_desk {
 public:
  /// @param runner, doors Must outlive this. @throws config_error If an option is out of range.
  device_desk(Backend& runner, sharded_doors& doors, const health_options& health)
      : backend_{runner}, doors_{doors}, half_{health} {
    half_.add_pool({});
  }

  void add_device(device_id d, std::uint32_t capacity) {
    half_.add_device(d, capacity, {});
    tell();
  }
  void remove_device(device_id d, deferred::rank_half& rank, time_point now) noexcept {
    if (half_.health().is_present(d)) half_.remove_device(d, rank, now);
    tell();
  }

  /// Handles everything due or reported. @param take_sent `take_sent(batch&)`: takes a shard's
  /// batch, if there is one. @param give_back `give_back(returned_requests&&)`: returns requests to
  /// their model's shard.
  /// @returns Whether it did anything.
  template <class TakeSent, class GiveBack>
  bool turn(deferred::rank_half& rank, time_point now, TakeSent&& take_sent,
            GiveBack&& give_back) noexcept {
    bool any = is_nudged_.exchange(false);
    owner<GiveBack> o{*this, rank, give_back, now};
    advance_backend(now);
    for (deferred::batch b{}; take_sent(b); b = {}) held_.push_back(std::move(b));
    any |= launch_what_may(o);
    while (mail_.take(taken_)) {
      any = true;
      for (const batch_end& e : taken_.ends) {
        if (e.only != nullptr) {
          half_.on_request_complete(e.at, *e.only, e.failed, now, o);
        } else {
          half_.on_complete(e.at, e.failed, now, o);
        }
      }
      taken_.ends.clear();
      for (const probe_end& e : taken_.probes) half_.on_probe(e.device, e.failed, now, o);
      taken_.probes.clear();
    }
    if (half_.next_wake() <= now) half_.advance(now, o);
    advance_backend(now);
    tell();
    return any;
  }
  /// When `turn` must be called next, or `never`.
  [[nodiscard]] time_point next_event() const noexcept {
    if constexpr (driven_backend<Backend>) {
      return std::min(half_.next_wake(), backend_.next_event());
    } else {
      return half_.next_wake();
    }
  }
  /// Whether `turn` must be called at once.
  [[nodiscard]] bool has_work() noexcept { return is_nudged_.load() || mail_.has_messages(); }

  void complete(batch_ticket at, bool failed) { mail_.post_end({at, failed}); }
  void complete_request(batch_ticket at, const request& r, bool failed) {
    mail_.post_end({at, failed, &r});
  }
  void complete_probe(device_id d, bool failed) { mail_.post_probe_end({d, failed}); }
  /// Calls `publish()`, and has the backend's `advance` called.
  template <class F>
  void nudge(F&& publish) noexcept {
    publish();
    is_nudged_.store(true);
  }

  /// @name Snapshots
  /// @{
  [[nodiscard]] bool has_device() const noexcept { return has_device_.load(); }
  [[nodiscard]] std::size_t hanging_devices() const noexcept { return hanging_.load(); }
  /// @}

  /// For questions only.
  [[nodiscard]] const device_half& devices() const noexcept { return half_; }

 private:
  /// Receives the calls of the devices' half.
  template <class GiveBack>
  struct owner {
    device_desk& self;
    deferred::rank_half& rank;
    GiveBack& give_back;
    time_point now;

    [[nodiscard]] deferred::rank_half& matcher() noexcept { return rank; }
    [[nodiscard]] owner& models() noexcept { return *this; }
    void begin_work(model_id id) noexcept { self.doors_.begin_work(id); }
    void end_work(model_id id) noexcept { self.doors_.end_work(id); }
    [[nodiscard]] std::optional<model_id> any_of(deferred::pool_id,
                                                 std::optional<model_id> behind) const noexcept {
      return self.doors_.any(behind);
    }
    void batch_ended(deferred::batch& b, bool failed, bool has_run = true) noexcept {
      if (b.requests.empty()) return;
      returned_requests back{
          .model = b.model, .failed = failed, .has_run = has_run, .requests = {}};
      back.requests.swap(b.requests);
      give_back(std::move(back));
    }
    void request_ended(request& r, bool failed) noexcept {
      returned_requests back{.model = r.model, .failed = failed, .requests = {}};
      back.requests.push_back(r);
      give_back(std::move(back));
    }
    void device_changed(device_id, std::string_view, bool) const noexcept {}
    void probe_hung(device_id) const noexcept {}
    void stray_end() const noexcept {}
    [[nodiscard]] bool abandon(const deferred::batch& b) noexcept
      requires abandoning_backend<Backend>
    {
      return self.backend_.abandon(b);
    }
    void probe(device_id d, model_id with) noexcept
      requires probing_backend<Backend>
    {
      self.backend_.probe(d, with);
    }
    void abandon_probe(device_id d, model_id with) noexcept
      requires probe_abandoning_backend<Backend>
    {
      self.backend_.abandon_probe(d, with);
    }
    [[nodiscard]] runtime::thread_load load_of(device_id d) noexcept
      requires load_telling_backend<Backend>
    {
      return self.backend_.load_of(d);
    }
  };

  /// Launches the next batches of entries; those of two shards may arrive out of order.
  template <class Owner>
  bool launch_what_may(Owner& o) noexcept {
    bool any = false;
    for (bool again = !held_.empty(); again;) {
      again = false;
      for (auto b = held_.begin(); b != held_.end();) {
        if (!o.rank.takes(*b, o.now)) {
          ++b;
          continue;
        }
        take_on(std::move(*b), o);
        b = held_.erase(b);
        again = any = true;
      }
    }
    return any;
  }
  /// Handles a sent batch. If its device went out of service or was removed meanwhile, the batch
  /// only takes its place in the entry.
  template <class Owner>
  void take_on(deferred::batch&& b, Owner& o) noexcept {
    if (half_.health().is_in_service(b.device)) {
      return launch(half_.on_dispatch(std::move(b), doors_));
    }
    o.batch_ended(b, false, false);
    complete(half_.on_dispatch(std::move(b), doors_).at(), true);
  }
  void launch(const deferred::batch& b) noexcept {
    try {
      backend_.launch(b);
    } catch (...) {  // After any exception the batch has failed.
      complete(b.at(), true);
    }
  }
  void advance_backend(time_point now) noexcept {
    if constexpr (driven_backend<Backend>) backend_.advance(now);
  }
  void tell() noexcept {
    has_device_.store(half_.pools().has_device({}), std::memory_order_relaxed);
    if (std::exchange(told_hangs_, half_.health().hang_changes()) ==
        half_.health().hang_changes()) {
      return;
    }
    hanging_.store(half_.health().hanging_devices(), std::memory_order_relaxed);
  }

  Backend& backend_;
  sharded_doors& doors_;
  device_half half_;
  inbox mail_;
  inbox::messages taken_;
  std::vector<deferred::batch> held_;  // Sent, and not launched yet.
  std::atomic<bool> is_nudged_{false};
  std::atomic<bool> has_device_{false};
  std::atomic<std::size_t> hanging_{0};
  std::uint64_t told_hangs_ = 0;
};

}  // namespace cohort::engine
