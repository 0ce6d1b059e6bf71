// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that takes the time of profiles.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/end_report.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/runtime/emulated.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Takes the time that profiles say and computes nothing, on an emulated executor that the loop
/// drives. Thread safety: as `staged_backend`.
class profile_backend {
 public:
  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }
  /// What `add_device` and `add_model` need, made beforehand; see `staged_backend`.
  using prepared_device = device_share;
  using prepared_model = latency_curve;
  [[nodiscard]] static prepared_device prepare_device(device_share share, device_id /*gpu*/) {
    return share;
  }

  void add_device(device_id id, device_share share = {}) {
    if (id.index() >= lanes_.size()) lanes_.resize(id.index() + 1);
    lanes_[id.index()].reset();
    lanes_[id.index()] = std::make_unique<lane>(executor_.make_stream(share));
    for (slot& s : lanes_[id.index()]->slots) {
      s.owner = this;
      s.device = id;
      s.invoke = [](runtime::completion& c, bool failed) noexcept {
        const auto& self = static_cast<slot&>(c);
        self.owner->report_(self.device, failed);
      };
    }
  }
  void add_model(model_id id, latency_curve latency) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    models_[id.index()] = std::move(latency);
  }
  /// A model of one device: profiles differ between partitions.
  void add_model(model_id id, device_id /*device*/, latency_curve latency) {
    add_model(id, std::move(latency));
  }
  /// Takes away a device whose last batch was reported.
  void take_device(device_id id) noexcept { lanes_[id.index()].reset(); }
  void take_model(model_id id, device_id /*device*/) noexcept { models_[id.index()].reset(); }

  /// Runs a batch of one for itself, behind what the device has, then calls `done`.
  void warm_up(model_id id, device_id device, runtime::completion& done) {
    lane& l = *lanes_[device.index()];
    executor_.busy(l.stream, (*models_[id.index()])(1));
    executor_.notify(l.stream, done);
  }

  void launch(const deferred::batch& b) noexcept {
    lane& l = *lanes_[b.device.index()];
    executor_.busy(l.stream, (*models_[b.model.index()])(b.size()));
    executor_.notify(l.stream, l.slots[l.next]);
    l.next = (l.next + 1) % l.slots.size();
  }
  [[nodiscard]] time_point next_event() const noexcept { return executor_.next_event(); }
  void advance(time_point now) { executor_.advance(now); }

 private:
  struct slot : runtime::completion {
    profile_backend* owner = nullptr;
    device_id device;
  };
  struct lane {
    explicit lane(runtime::emulated_executor::stream s) : stream{std::move(s)} {}
    std::array<slot, deferred::rank::max_outstanding> slots;
    std::size_t next = 0;
    runtime::emulated_executor::stream stream;
  };

  runtime::emulated_executor executor_;
  end_report report_;
  std::vector<std::unique_ptr<lane>> lanes_;
  std::vector<std::optional<latency_curve>> models_;
};
static_assert(driven_backend<profile_backend>);

}  // namespace cohort::engine
