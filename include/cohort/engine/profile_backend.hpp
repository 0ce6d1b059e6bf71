// SPDX-License-Identifier: Apache-2.0
/// @file
/// The backend that runs batches by their profiles' times.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/noise_source.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/runtime/emulated.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Takes the profiled time of each batch, perturbed by a `reality`, and computes nothing, on an
/// emulated executor that the loop drives. Faults name device ids, at instants since the loop's
/// start; the lateness of timers is the driver's own. On a device of capacity c each batch takes c
/// times as long, the time it would have if all c entries were busy. Thread safety: as
/// `executor_backend`.
class profile_backend {
 public:
  static constexpr bool queues_batches = true;  ///< A `queueing_backend`.

  profile_backend() = default;
  /// @throws config_error If a field of `r` is outside its range.
  explicit profile_backend(reality r, std::uint64_t seed = 1) {
    r.validate();
    noise_ = noise_source{r.noise, seed, std::move(r.models)};
    faults_ = std::move(r.faults);
  }
  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    report_.bind(engine);
  }
  /// Stops all reports; the engine calls it at its end.
  void unbind() noexcept { report_.unbind(); }
  /// The arguments of `add_device` and `add_model`, prepared in advance; see `executor_backend`.
  using prepared_device = device_spec;
  using prepared_model = latency_curve;
  [[nodiscard]] static prepared_device prepare_device(const device_spec& spec) { return spec; }

  void add_device(device_id id, const device_spec& made = {}) {
    if (id.index() >= devices_.size()) devices_.resize(id.index() + 1);
    auto& lanes = devices_[id.index()];
    lanes.clear();
    for (std::uint32_t e = 0; e < made.capacity; ++e) {
      lanes.push_back(
          std::make_unique<lane>(executor_.make_stream(made.share, device_course{faults_, id})));
      slot& probe = lanes.back()->probe;
      probe.owner = this;
      probe.at = {id, e};
      probe.invoke = [](runtime::completion& c, bool failed) noexcept {
        const auto& self = static_cast<slot&>(c);
        self.owner->report_.probe_ended(self.at.device, failed);
      };
      for (slot& s : lanes.back()->slots) {
        s.owner = this;
        s.invoke = [](runtime::completion& c, bool failed) noexcept {
          const auto& self = static_cast<slot&>(c);
          self.owner->report_.batch_ended(self.at, failed);
        };
      }
    }
  }
  void add_model(model_id id, latency_curve latency) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    models_[id.index()] = std::move(latency);
    (void)noise_.bias(id);  // Here because `launch` must not allocate.
  }
  /// Adds a model to one device: profiles differ between partitions.
  void add_model(model_id id, device_id /*device*/, latency_curve latency) {
    add_model(id, std::move(latency));
  }
  /// Takes away a device after the report of its last batch.
  void take_device(device_id id) noexcept { devices_[id.index()].clear(); }
  void take_model(model_id id, device_id /*device*/) noexcept { models_[id.index()].reset(); }

  /// Runs a batch of one, behind the device's present work, then calls `done`.
  void warm_up(model_id id, device_id device, runtime::completion& done) {
    lane& l = *devices_[device.index()].front();
    executor_.busy(l.stream, (*models_[id.index()])(1));
    executor_.notify(l.stream, done);
  }

  void launch(const deferred::batch& b) noexcept {
    const auto& lanes = devices_[b.device.index()];
    lane& l = *lanes[b.entry];
    const auto sharing = static_cast<std::int64_t>(lanes.size());
    const duration profiled = (*models_[b.model.index()])(b.size()) * sharing;
    const double factor = noise_.draw(b.model, b.exec_at);
    executor_.busy(l.stream,
                   duration{std::llround(static_cast<double>(profiled.count()) * factor)});
    l.slots[l.next].at = b.at();
    executor_.notify(l.stream, l.slots[l.next]);
    l.next = (l.next + 1) % l.slots.size();
  }
  /// It holds no memory of requests.
  [[nodiscard]] static bool abandon(const deferred::batch& /*b*/) noexcept { return true; }
  /// Runs a batch of one of the model.
  void probe(device_id id, model_id with) noexcept {
    lane& l = *devices_[id.index()].front();
    executor_.busy(l.stream, (*models_[with.index()])(1));
    executor_.notify(l.stream, l.probe);
  }
  [[nodiscard]] time_point next_event() const noexcept { return executor_.next_event(); }
  void advance(time_point now) { executor_.advance(now); }

 private:
  struct slot : runtime::completion {
    profile_backend* owner = nullptr;
    batch_ticket at;  // The running batch.
  };
  struct lane {
    explicit lane(runtime::emulated_executor::stream s) : stream{std::move(s)} {}
    std::array<slot, deferred::rank::entry_depth> slots;
    std::size_t next = 0;
    slot probe;
    runtime::emulated_executor::stream stream;
  };

  runtime::emulated_executor executor_;
  noise_source noise_;
  std::vector<fault> faults_;
  end_report report_;
  std::vector<std::vector<std::unique_ptr<lane>>> devices_;  // Their entries.
  std::vector<std::optional<latency_curve>> models_;
};
static_assert(driven_backend<profile_backend> && abandoning_backend<profile_backend> &&
              probing_backend<profile_backend>);

}  // namespace cohort::engine
