// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which models' requests make devices hang or fail: `model_costs`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

namespace cohort::engine {

/// Notes whose batch it was when a device was taken out of service, and says which model is to be
/// suspended. That is one whose requests cost two devices in a row within a minute, with no other
/// model's in between: a faulty device is one device, and takes whatever model comes. After its
/// suspension one more within a minute is enough, for twice as long. A value: owns no thread, reads
/// no clock. O(1) a call; allocates only in `add_model`. Thread safety: none.
class model_costs {
 public:
  /// How long a cost is remembered.
  static constexpr duration memory = std::chrono::minutes{1};
  /// How long the first suspension lasts, and the longest.
  static constexpr duration shortest = std::chrono::seconds{10};
  static constexpr duration longest = std::chrono::minutes{10};

  /// A new model, under an id that may have been another's.
  void add_model(model_id m) {
    if (m.index() >= models_.size()) models_.resize(m.index() + 1);
    models_[m.index()] = {};
    if (last_ && last_->model == m) last_.reset();
  }
  /// A device was taken out of service by a batch of the model.
  /// @returns For how long the model is suspended from now on, if it was not.
  std::optional<duration> note(model_id m, device_id d, time_point now) noexcept {
    const std::optional<cost> before = last_;
    last_ = cost{m, d, now};
    record& r = models_[m.index()];
    if (now < r.until) return std::nullopt;
    const bool is_again = r.lasts > duration{0} && now - r.until <= memory;
    const bool is_second =
        before && before->model == m && before->device != d && now - before->at <= memory;
    if (!is_again && !is_second) return std::nullopt;
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
  };
  std::optional<cost> last_;  // Of any model.
  std::vector<record> models_;
};

}  // namespace cohort::engine
