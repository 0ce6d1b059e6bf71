// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which models' requests make devices hang or fail: `model_costs`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Notes whose batch it was when a device was taken out of service, and says which model is to be
/// suspended. Devices that fail by themselves meet models in proportion to their batches; so a cost
/// of a model with the share s of all batches is evidence of ln 1/s against it, and a model is
/// suspended once it has cost two devices in a row, each within a minute of the one before, and
/// chance alone would have met it so often in one case of 20 only: after two costs with a share of
/// a fifth, after five with a half, and never if it has nearly all batches. What another model
/// costs in between clears it, and a device that it costs again and again counts once: that may be
/// the device's fault. After its suspension another device within a minute is enough, for twice as
/// long. A value: owns no thread, reads no clock. O(1) a call, and O(models) once in `most_counted`
/// batches; allocates only in `add_model`. Thread safety: none.
class model_costs {
 public:
  /// How long a cost is remembered.
  static constexpr duration memory = std::chrono::minutes{1};
  /// How long the first suspension lasts, and the longest.
  static constexpr duration shortest = std::chrono::seconds{10};
  static constexpr duration longest = std::chrono::minutes{10};
  /// Evidence that suspends: ln 20.
  static constexpr double enough = 3;
  /// When so many batches are counted, all counts are halved.
  static constexpr std::uint64_t most_counted = 4096;

  /// A new model, under an id that may have been another's.
  void add_model(model_id m) {
    if (m.index() >= models_.size()) models_.resize(m.index() + 1);
    batches_ -= models_[m.index()].batches;
    models_[m.index()] = {};
    if (last_ && last_->model == m) last_.reset();
  }
  /// A batch of the model was sent to a device. Of one that was not added nothing is noted.
  void ran(model_id m) noexcept {
    if (m.index() >= models_.size()) return;
    ++models_[m.index()].batches;
    if (++batches_ < most_counted) return;
    batches_ = 0;
    for (record& r : models_) batches_ += r.batches /= 2;
  }
  /// A device was taken out of service by a batch of the model.
  /// @returns For how long the model is suspended from now on, if it was not.
  std::optional<duration> note(model_id m, device_id d, time_point now) noexcept {
    const std::optional<cost> before = std::exchange(last_, cost{m, d, now});
    record& r = models_[m.index()];
    if (now < r.until) return std::nullopt;
    const bool is_same = before && before->model == m && before->device == d;
    const bool is_again = r.lasts > duration{0} && now - r.until <= memory && !is_same;
    const bool is_next = before && before->model == m && now - before->at <= memory;
    const bool is_other = is_next && !is_same;
    if (!is_again && !is_next) r.evidence = 0;
    if (!is_next || is_other) r.evidence -= std::log(share(r));
    if (!is_again && !(is_other && r.evidence >= enough)) return std::nullopt;
    r.lasts = is_again ? std::min(2 * r.lasts, longest) : shortest;
    r.until = now + r.lasts;
    return r.lasts;
  }
  [[nodiscard]] bool is_suspended(model_id m, time_point now) const noexcept {
    return m.index() < models_.size() && now < models_[m.index()].until;
  }

 private:
  struct cost {
    model_id model;
    device_id device;
    time_point at;
  };
  struct record {
    time_point until = distant_past;
    duration lasts{0};
    double evidence = 0;
    std::uint64_t batches = 0;
  };
  /// Of all batches; as if each model had had one more.
  [[nodiscard]] double share(const record& r) const noexcept {
    return static_cast<double>(r.batches + 1) / static_cast<double>(batches_ + models_.size());
  }

  std::optional<cost> last_;  // Of any model.
  std::vector<record> models_;
  std::uint64_t batches_ = 0;  // Of all models.
};

}  // namespace cohort::engine
